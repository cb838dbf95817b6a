"""Which jobs may be replayed, and what a restart is (design invariant 4, specification 003 step 14)."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from maestro.domain.jobs.background import is_background
from maestro.domain.jobs.job import Job, JobStatus


class ReplayMode(StrEnum):
    """Resume goes on at the failed step and keeps every result; restart begins again as a new linked job."""

    RESUME = "resume"
    RESTART = "restart"


RESUMABLE = frozenset({JobStatus.FAILED, JobStatus.CANCELLED})


def refusal(job: Job, newest: Job, mode: ReplayMode, led_to: Iterable[Job] = ()) -> str | None:
    """Return why this job cannot be replayed this way, or None.

    ``newest`` is the job that answers the same message, or does the same task, now, this one or a restart of it, and
    ``led_to`` what hangs on its answer. A message is answered once: only the newest may be resumed, and while that one
    still works, or other agents do for it, nothing else begins.
    """
    if job.erased:
        return f"what was said in job {job.id} was deleted with its conversation, so there is nothing left to answer."
    if not job.status.ended:
        return f"job {job.id} is {job.status}; only an ended job can be replayed. Cancel it first, or wait."
    if newest.id != job.id and (mode is ReplayMode.RESUME or not newest.status.ended):
        what = "message" if job.inbox_id is not None else "task"
        return f"the {what} of job {job.id} is answered by job {newest.id} now, which is {newest.status}."
    working = next((other for other in led_to if not other.status.ended), None)
    if mode is ReplayMode.RESTART and working is not None:
        return f"job {working.id}, which came of it, is {working.status} still. Cancel that first, or wait."
    if mode is ReplayMode.RESUME and job.status not in RESUMABLE:
        return f"job {job.id} is {job.status}; there is no failed step to resume. Use restart to answer again."
    answers_nothing = job.inbox_id is None or job.lane is None
    if mode is ReplayMode.RESTART and job.parent_id is None and answers_nothing and not is_background(job):
        return f"job {job.id} answers no message, so there is nothing to answer again."
    return None


def restarted(job: Job, new_id: str, now: datetime) -> Job:
    """Return the job that answers the same message, or does the same task, from the top."""
    again = Job(
        id=new_id,
        kind=job.kind,
        priority=job.priority,
        lane=job.lane,
        inbox_id=job.inbox_id,
        restarted_from=job.id,
        created_at=now,
        **job.address.model_dump(),
    )
    if job.parent_id is not None:  # nobody routes a task: whose it is was said when it was given
        again.agent_id, again.client_id, again.conversation_id = job.agent_id, job.client_id, job.conversation_id
        again.parent_id, again.depth, again.task, again.hears = job.parent_id, job.depth, job.task, job.hears
    if is_background(job):
        again.agent_id, again.client_id, again.task = job.agent_id, job.client_id, job.task
        again.schedule, again.slot, again.webhook_id = job.schedule, job.slot, job.webhook_id
    return again


class JobControl(Protocol):
    """What operators do with jobs; done by ``temporal.control``, used by the API and the command line."""

    async def replay(self, job_id: str, mode: ReplayMode, actor: str) -> str:
        """Replay an ended job and return the id of the job that runs now; raises ``NotFound`` or ``Conflict``."""
        ...

    async def cancel(self, job_id: str, actor: str) -> None:
        """Stop an open job for good; raises ``NotFound`` or ``Conflict``."""
        ...
