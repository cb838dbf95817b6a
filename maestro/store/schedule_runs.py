"""What runs of heartbeats and crons leave in the rows of these: the flood guard, counts, failures in a row."""

from sqlalchemy import bindparam
from sqlmodel import col, select

from maestro.domain.jobs.job import OPEN, Job, JobStatus
from maestro.domain.schedules.firing import runs_once
from maestro.domain.schedules.schedule import Cron, Heartbeat, Planned
from maestro.store.prepared import Prepared, one_of
from maestro.store.repository import Repository

KINDS: dict[str, type[Planned]] = {str(kind.kind): kind for kind in (Heartbeat, Cron)}


class ScheduleRuns(Repository):
    """Schedules by their ``ref``, and their jobs."""

    _OF_JOB = Prepared(select(Job.schedule, Job.turn).where(col(Job.id) == bindparam("job_id")))
    _OPEN_JOB = Prepared(
        select(Job.id)
        .where(col(Job.schedule) == bindparam("ref"), one_of(col(Job.status), OPEN))
        .order_by(col(Job.turn))
        .limit(1)
    )
    _NEWEST = (
        select(col(Job.id))
        .where(col(Job.schedule) == bindparam("ref"))
        .order_by(col(Job.turn).desc())
        .limit(1)
        .scalar_subquery()
    )
    _TREE = select(col(Job.id), col(Job.status)).where(col(Job.parent_id) == _NEWEST).cte("led_to", recursive=True)
    _LED_TO = _TREE.union_all(select(col(Job.id), col(Job.status)).where(col(Job.parent_id) == _TREE.c.id))
    _OPEN_BELOW = Prepared(select(_LED_TO.c.id).where(one_of(_LED_TO.c.status, OPEN)).limit(1))
    _LATER = Prepared(
        select(Job.id)
        .where(
            col(Job.schedule) == bindparam("ref"),
            col(Job.turn) > bindparam("turn"),
            one_of(col(Job.status), (*OPEN, JobStatus.FAILED)),
        )
        .limit(1)
    )

    def find(self, ref: str | None) -> Planned | None:
        """Return a schedule by its name outside, such as cron-3; None when there is none any more."""
        kind, _, number = (ref or "").rpartition("-")
        return self._session.get(KINDS[kind], int(number)) if kind in KINDS and number.isdecimal() else None

    def is_instructed(self, job: Job) -> bool:
        """Say whether a job's task is just what its schedule says, with nothing in it that was fetched."""
        planned = self.find(job.schedule) if job.parent_id is None else None
        return planned is not None and job.task == planned.prompt

    def open_job(self, ref: str) -> str | None:
        """Return a job of the schedule that is not over, whoever began it: with one, the next does not begin.

        The tasks that its last one gave to other agents count: else they would pile up behind runs that are soon over.
        """
        found: str | None = self._value(self._OPEN_JOB, ref=ref) or self._value(self._OPEN_BELOW, ref=ref)
        return found

    def began(self, job: Job) -> None:
        """Note that a run begins; what was to run once has had its run, unless this one is beside the schedule."""
        planned = self.find(job.schedule)
        if planned is not None:
            planned.runs += 1
            planned.last_job_id = job.id
            if job.slot is not None and runs_once(planned):
                planned.ended_at = self._now

    def closed(self, job_id: str, status: JobStatus) -> None:
        """Count the failures in a row of the schedule that a job was a run of, if it was of one.

        A script that asked a model has not succeeded before that job has.
        """
        ref, turn = self._row(self._OF_JOB, job_id=job_id) or (None, None)
        planned = self.find(ref)
        if planned is not None and status is JobStatus.FAILED:
            planned.failures += 1
        elif planned is not None and status is JobStatus.COMPLETED and not self._row(self._LATER, ref=ref, turn=turn):
            planned.failures = 0
