"""What a model is asked when no person's message is at hand: a task of another agent, or what became of tasks."""

import sys

from maestro.domain.agents import Agent, MemoryScope
from maestro.domain.context import Matter
from maestro.domain.conversations import Line, conversation_key
from maestro.domain.delegations import Result, results_text, task_text
from maestro.domain.history import Utterance
from maestro.domain.jobs import Job, JobStatus
from maestro.domain.memory import place_of
from maestro.domain.prompts import Role
from maestro.domain.tokens import estimate
from maestro.store.transaction import Transaction

EVER = sys.maxsize
"""A message's id that none is above."""


def assigned(tx: Transaction, job: Job, agent: Agent, scope: MemoryScope) -> Matter:
    """Return what a delegate is to answer: the task alone, for it knows nothing of the conversation (decision 13)."""
    delegator = tx.delegations.lineage(job)[1]
    user_name = tx.inbox.get(job.inbox_id).user_name if job.inbox_id is not None else ""
    return Matter(
        turns=(_turn(task_text(tx.agents.get(delegator.agent_id), user_name, job)),),
        user_name=user_name,
        # What it learned here is its own: the conversation is the delegator's.
        place=place_of(agent, conversation_key(agent.id or 0, job.address, None), scope),
    )


def results(tx: Transaction, job: Job) -> Utterance:
    """Return what a delegator is told when everything it waited to hear has ended."""
    return _turn(results_text([_result(tx, task, last) for task, last in tx.delegations.heard(job.parent_id or "")]))


def said_before(tx: Transaction, job: Job, limit: int) -> list[Line]:
    """Return the messages before those results, newest first; the results themselves are told by ``results``."""
    told = {last.id for _, last in tx.delegations.heard(job.parent_id or "")}
    newest = tx.conversations.newest(job.conversation_id or 0, EVER, limit)
    return [message for message in newest if message.job_id not in told]


def _result(tx: Transaction, task: Job, last: Job) -> Result:
    answered = last.status is JobStatus.COMPLETED and last.answer_id is not None
    return Result(
        slug=tx.agents.get(task.agent_id).slug,
        task=task.task,
        answer=tx.conversations.message(last.answer_id).content if answered else None,
        status=last.status,
    )


def _turn(text: str) -> Utterance:
    return Utterance(Role.USER, text, estimate(text))
