"""Tasks that agents give each other: the agent that does one, its prompt, and the results for the delegator.

See docs/decisions.md: delegation.
"""

import sys

from temporalio import activity

from activities.routing import Typing, require_active
from maestro.domain.context.history import HistoryEntry
from maestro.domain.conversations.conversation import StoredMessage
from maestro.domain.jobs.delegations import (
    ANSWER_PERSON,
    TaskResult,
    background_text,
    continuation_text,
    results_text,
    task_text,
)
from maestro.domain.jobs.flow import TakeUpOutcome
from maestro.domain.jobs.job import Job, JobStatus, StepRef
from maestro.domain.llm.models import estimate
from maestro.domain.llm.prompts import Role
from maestro.domain.schedules.expressions import read_zone
from maestro.store.store import Store
from maestro.store.transaction import Transaction

EVER = sys.maxsize
"""A message id above all that exist, for a history without a limit."""


class DelegationActivities:
    """Starts the jobs of tasks."""

    def __init__(self, store: Store, typing: Typing) -> None:
        self._store = store
        self._typing = typing

    @activity.defn(no_thread_cancel_exception=True)
    def take_up(self, ref: StepRef) -> TakeUpOutcome:
        """Return the agent of the task; raises ``NoAgent`` when that agent was paused meanwhile."""
        with self._store.begin() as tx:
            job = tx.jobs.get(ref.job_id)
            agent = tx.agents.get(job.agent_id)
            require_active(agent)
            has_user = job.inbox_id is not None
            outcome = TakeUpOutcome(
                agent=agent.slug,
                conversation_id=job.conversation_id or 0,
                heard=tx.jobs.delegations.delegator(job) is not None,
                typing=has_user and self._typing.start(job.id, job.address),
                asked=has_user,
                precedence=tx.jobs.precedence_of(job),
            )
            return tx.jobs.steps.done(ref, outcome)


def task_turn(tx: Transaction, job: Job) -> HistoryEntry:
    """Return the user turn of a prompt without a user's message: the task of a delegate, or of a job without a user.

    See docs/decisions.md: delegation, schedules.
    """
    if job.parent_id is None:
        schedule = tx.background.schedules.find(job.schedule)
        return _user_turn(background_text(job, read_zone(schedule.zone if schedule is not None else "UTC")))
    delegator = tx.jobs.delegations.lineage(job)[1]
    user_name = tx.inbox.read(job.inbox_id).user_name if job.inbox_id is not None else ""
    return _user_turn(task_text(tx.agents.read(delegator.agent_id), user_name, job))


def earlier_turns(tx: Transaction, job: Job) -> tuple[HistoryEntry, ...]:
    """Return the task and earlier answers of a delegate that continues, newest first; empty for other jobs.

    The other messages of the conversation belong to the delegator: a delegate that read them would take another agent's
    words for its own.
    """
    turns: list[HistoryEntry] = []
    for ancestor in tx.jobs.delegations.lineage(job)[1:]:
        if ancestor.has_answer:
            turns.append(_own_answer(tx, ancestor))
        if ancestor.task:
            return (*turns, task_turn(tx, ancestor))
        turns.append(results_turn(tx, ancestor))
    return ()


def results_turn(tx: Transaction, job: Job) -> HistoryEntry:
    """Return the turn with the results for a delegator, once all tasks that it waits for have ended."""
    results = [
        TaskResult(
            slug=tx.agents.read(task.agent_id).slug,
            task=task.task,
            answer=_own_answer(tx, last).content if last.status is JobStatus.COMPLETED and last.has_answer else None,
            status=last.status,
        )
        for task, last in tx.jobs.delegations.results(job.parent_id or "")
    ]
    origin = tx.jobs.delegations.background_origin(job)
    return _user_turn(results_text(results, ANSWER_PERSON if origin is None else continuation_text(origin)))


def messages_before(tx: Transaction, job: Job, limit: int) -> list[StoredMessage]:
    """Return the messages before the results of a delegator's tasks, newest first."""
    result_jobs = {last.id for _, last in tx.jobs.delegations.results(job.parent_id or "")}
    newest = tx.conversations.newest(job.conversation_id or 0, EVER, limit)
    return [message for message in newest if message.job_id not in result_jobs]


def _own_answer(tx: Transaction, job: Job) -> HistoryEntry:
    if job.answer_id is None:
        return HistoryEntry(Role.ASSISTANT, job.said, estimate(job.said))
    message = tx.conversations.message(job.answer_id)
    return HistoryEntry(Role.ASSISTANT, message.content, message.token_estimate, message.id)


def _user_turn(text: str) -> HistoryEntry:
    return HistoryEntry(Role.USER, text, estimate(text))
