"""What becomes of a message that somebody changed on the platform after it came in."""

from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.messages import Accepted, IncomingMessage
from maestro.store.transaction import Transaction

UNKNOWN = "an edit of a message that never came in"
TOO_LATE = "an edit of a message that is being answered, or was"


def take(tx: Transaction, edit: IncomingMessage) -> Accepted:
    """Let the new text stand for the old one while nobody works on it; later it is only counted."""
    first = tx.inbox.find(edit.model_copy(update={"id": edit.edit_of}))
    if first is None or first.user_id != edit.user_id:
        tx.ignored.add(edit.address, UNKNOWN)
        return Accepted(message_id=edit.edit_of, job_id="", duplicate=False, ignored=UNKNOWN)
    if first.content == edit.content:
        return Accepted(message_id=edit.edit_of, job_id=first.job_id, duplicate=True)
    if not _untouched(tx.jobs.get(first.job_id)):
        tx.ignored.add(edit.address, TOO_LATE)
        return Accepted(message_id=edit.edit_of, job_id=first.job_id, duplicate=True, ignored=TOO_LATE)
    tx.inbox.rewrite(first.id or 0, edit.content)
    return Accepted(message_id=edit.edit_of, job_id=first.job_id, duplicate=True)


def _untouched(job: Job) -> bool:
    """Say whether a job is for an agent and none of its steps began: none can have read the message."""
    return job.status is JobStatus.PENDING and job.started_at is None and not job.notice
