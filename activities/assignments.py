"""What a model is asked when no person's message is at hand: a task of another agent, or what became of tasks."""

import sys

from maestro.domain.context.history import Utterance
from maestro.domain.conversations.conversation import Line
from maestro.domain.jobs.delegations import Result, results_text, task_text
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.llm.prompts import Role
from maestro.domain.llm.tokens import estimate
from maestro.store.transaction import Transaction

EVER = sys.maxsize
"""A message's id that none is above."""


def assigned(tx: Transaction, job: Job) -> Utterance:
    """Return the task of a delegate, which knows nothing else of the conversation (decision 13)."""
    delegator = tx.delegations.lineage(job)[1]
    user_name = tx.inbox.read(job.inbox_id).user_name if job.inbox_id is not None else ""
    return _turn(task_text(tx.agents.read(delegator.agent_id), user_name, job))


def done_so_far(tx: Transaction, job: Job) -> tuple[Utterance, ...]:
    """Return the task of a delegate that goes on, and what it answered until now, newest first; nothing for others.

    The conversation around them is its delegator's: told that, it would take another agent's words for its own.
    """
    found: list[Utterance] = []
    for above in tx.delegations.lineage(job)[1:]:
        if above.answer_id is not None:
            said = tx.conversations.message(above.answer_id)
            found.append(Utterance(Role.ASSISTANT, said.content, said.token_estimate, said.id))
        if above.task:
            return (*found, assigned(tx, above))
        found.append(results(tx, above))
    return ()


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
        slug=tx.agents.read(task.agent_id).slug,
        task=task.task,
        answer=tx.conversations.message(last.answer_id).content if answered else None,
        status=last.status,
    )


def _turn(text: str) -> Utterance:
    return Utterance(Role.USER, text, estimate(text))
