"""Executes control words, such as ``/stop`` (docs/decisions.md: control words)."""

from collections.abc import Sequence

from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.messages import ControlWord
from maestro.intake.access import ReceivedMessage, job_of
from maestro.store.jobs.delegations import STOPPED
from maestro.store.transaction import Transaction

UNSAID = "obeyed without a reply, because too many jobs were waiting"


def obey(tx: Transaction, arrival: ReceivedMessage, word: ControlWord) -> Job:
    """Execute a control word; the reply is a job without a lane."""
    job = job_of(tx, arrival)
    job.inbox_id = tx.inbox.add(arrival.message, job.id, control=word).id
    if word is ControlWord.STOP:
        job.notice = _stop(tx, _stoppable(tx, arrival))
    elif word is ControlWord.STATUS:
        job.notice = _status_text(tx, arrival)
    else:
        tx.conversations.close_all(arrival.message.address, arrival.alone, job.inbox_id or 0)
        job.notice = "A new conversation begins with your next message."
    return tx.jobs.add(job)


def can_stop(tx: Transaction, arrival: ReceivedMessage) -> bool:
    """Return whether ``/stop`` would stop a job that is not stopping already."""
    return any(not job.stop_requested for job in _stoppable(tx, arrival))


def _status_text(tx: Transaction, arrival: ReceivedMessage) -> str:
    lane = arrival.lane
    working = "I am working on an answer" if tx.jobs.running_in(lane) else "Nothing is running here"
    waiting = tx.jobs.waiting_in(lane)
    # A delegator that continues has a lane, and is counted as its work, so only jobs without a lane are tasks.
    tasks = sum(task.lane is None for task in _tasks(tx, arrival))
    delegated = [f"{tasks} {'task' if tasks == 1 else 'tasks'} passed on to other agents."] if tasks else []
    questions = [
        f"#{question.id} waits for {'a yes or no' if question.approval else 'an answer'}."
        for question in tx.jobs.questions.open_in(lane)
    ]
    return " ".join([f"{working}; {waiting} more waiting." if waiting else f"{working}.", *delegated, *questions])


def _stoppable(tx: Transaction, arrival: ReceivedMessage) -> Sequence[Job]:
    """Return the jobs that ``/stop`` ends: all tasks, and the running or next job, or else the newest waiting one."""
    head, tasks = tx.jobs.lane_head(arrival.lane), _tasks(tx, arrival)
    if head is None or head.stop_requested:
        head = next(iter(tx.jobs.waiting_jobs_in(arrival.lane)), head)
    return [*([head] if head is not None else []), *(task for task in tasks if head is None or task.id != head.id)]


def _tasks(tx: Transaction, arrival: ReceivedMessage) -> Sequence[Job]:
    """Return the tasks that agents delegated because of this lane's messages."""
    return tx.jobs.delegations.open_in(arrival.message.address, arrival.alone)


def _stop(tx: Transaction, jobs: Sequence[Job]) -> str:
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
            tx.jobs.close(job.id, JobEnding(status=JobStatus.CANCELLED, reason="stopped while it waited"))
    return "Stopped."
