"""Executes control words, such as ``/stop`` (docs/decisions.md: control words)."""

from collections.abc import Sequence

from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.messages import ControlWord
from maestro.intake.access import ReceivedMessage, new_job
from maestro.store.jobs.delegations import STOPPED
from maestro.store.transaction import Transaction

UNSAID = "obeyed without a reply, because too many jobs were waiting"


def execute(tx: Transaction, received: ReceivedMessage, word: ControlWord) -> Job:
    """Execute a control word; the reply is a job without a lane."""
    job = new_job(tx, received)
    job.inbox_id = tx.inbox.add(received.message, job.id, control=word).id
    if word is ControlWord.STOP:
        job.notice = _stop_jobs(tx, _stoppable_jobs(tx, received))
    elif word is ControlWord.STATUS:
        job.notice = _status_text(tx, received)
    else:
        tx.conversations.close_all(received.message.address, received.alone, job.inbox_id or 0)
        job.notice = "A new conversation begins with your next message."
    return tx.jobs.add(job)


def can_stop(tx: Transaction, received: ReceivedMessage) -> bool:
    """Return whether ``/stop`` would stop a job that is not stopping already."""
    return any(not job.stop_requested for job in _stoppable_jobs(tx, received))


def _status_text(tx: Transaction, received: ReceivedMessage) -> str:
    lane = received.lane
    working = "I am working on an answer" if tx.jobs.running_in(lane) else "Nothing is running here"
    waiting = tx.jobs.waiting_in(lane)
    # A continuing delegator's job has a lane, and counts as waiting there: only jobs without a lane are tasks.
    tasks = sum(task.lane is None for task in _delegated_tasks(tx, received))
    delegated = [f"{tasks} {'task' if tasks == 1 else 'tasks'} passed on to other agents."] if tasks else []
    questions = [
        f"#{question.id} waits for {'a yes or no' if question.approval else 'an answer'}."
        for question in tx.jobs.questions.open_in(lane)
    ]
    return " ".join([f"{working}; {waiting} more waiting." if waiting else f"{working}.", *delegated, *questions])


def _stoppable_jobs(tx: Transaction, received: ReceivedMessage) -> Sequence[Job]:
    """Return the jobs that ``/stop`` ends: all tasks, and the running or next job, or else the newest waiting one."""
    head, tasks = tx.jobs.lane_head(received.lane), _delegated_tasks(tx, received)
    if head is None or head.stop_requested:
        head = next(iter(tx.jobs.waiting_jobs_in(received.lane)), head)
    return [*([head] if head is not None else []), *(task for task in tasks if head is None or task.id != head.id)]


def _delegated_tasks(tx: Transaction, received: ReceivedMessage) -> Sequence[Job]:
    """Return the tasks that agents delegated because of this lane's messages."""
    return tx.jobs.delegations.open_in(received.message.address, received.alone)


def _stop_jobs(tx: Transaction, jobs: Sequence[Job]) -> str:
    """Stop jobs; a job that is not inside a step ends at once."""
    if not jobs:
        return "Nothing is running here."
    for job in jobs:
        tx.jobs.request_stop(job.id)
    tx.jobs.delegations.stop_reporting(jobs)
    for job in jobs:
        if job.status is JobStatus.PENDING:
            tx.jobs.close(job.id, JobEnding(status=JobStatus.CANCELLED, reason=STOPPED))
        if job.status is JobStatus.WAITING:
            tx.jobs.close(job.id, JobEnding(status=JobStatus.CANCELLED, reason="stopped while waiting"))
    return "Stopped."
