"""Jobs, their places in lanes, and how they end."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import func
from sqlmodel import col, or_, select, update

from maestro.domain.errors import NotFound
from maestro.domain.jobs import OPEN, Ending, Job, JobStatus
from maestro.domain.messages import LaneKey
from maestro.store.repository import Repository

HOLDS_A_PLACE = (JobStatus.PENDING, JobStatus.RUNNING)


class Jobs(Repository):
    """The ``queue`` table."""

    def add(self, job: Job) -> Job:
        """Add a job; with a lane it takes the last place in it."""
        job.created_at = self._now
        job.turn = self._next_turn()
        self._session.add(job)
        self._session.flush()
        return job

    def get(self, job_id: str) -> Job:
        """Return a job that must exist; raises ``NotFound``."""
        job = self._session.get(Job, job_id)
        if job is None:
            raise NotFound(f"job {job_id} does not exist")
        return job

    def pending(self) -> int:
        """Count the jobs that wait for their turn."""
        return self._session.exec(select(func.count()).select_from(Job).where(Job.status == JobStatus.PENDING)).one()

    def claim(self, limit: int, abandoned_before: datetime) -> Sequence[str]:
        """Take up to ``limit`` jobs whose turn it is, most urgent first, so that only one dispatcher starts them.

        A claim that led to nothing lapses: one made before ``abandoned_before`` counts as none.
        """
        heads = (
            select(Job.lane, func.min(Job.turn).label("turn"))
            .where(col(Job.status).in_(HOLDS_A_PLACE), col(Job.lane).is_not(None))
            .group_by(Job.lane)
            .subquery()
        )
        statement = (
            select(Job.id)
            .outerjoin(heads, (col(Job.lane) == heads.c.lane) & (col(Job.turn) == heads.c.turn))
            .where(
                Job.status == JobStatus.PENDING,
                or_(col(Job.lane).is_(None), heads.c.turn.is_not(None)),
                or_(col(Job.claimed_at).is_(None), col(Job.claimed_at) < abandoned_before),
            )
            .order_by(col(Job.priority), col(Job.turn))
            .limit(limit)
        )
        ids = self._session.exec(statement).all()
        if ids:
            self._session.exec(update(Job).where(col(Job.id).in_(ids)).values(claimed_at=self._now))
        return ids

    def unclaim(self, ids: Iterable[str]) -> None:
        """Give back claims that could not be used."""
        self._session.exec(
            update(Job).where(col(Job.id).in_(list(ids)), col(Job.status) == JobStatus.PENDING).values(claimed_at=None)
        )

    def started(self, job_id: str) -> None:
        """Note that the workflow of a pending job runs."""
        self._session.exec(
            update(Job)
            .where(col(Job.id) == job_id, col(Job.status) == JobStatus.PENDING)
            .values(status=JobStatus.RUNNING, started_at=func.coalesce(Job.started_at, self._now))
        )

    def end(self, job_id: str, ending: Ending) -> bool:
        """End an open job, which frees its place; false when it had ended already."""
        ended = self._session.exec(
            update(Job)
            .where(col(Job.id) == job_id, col(Job.status).in_(OPEN))
            .values(status=ending.status, error=ending.error, reason=ending.reason, completed_at=self._now)
        )
        return ended.rowcount > 0

    def reopen(self, job: Job) -> Job:
        """Let an ended job run again under the same id, from the step that failed, at the end of its lane."""
        job.status = JobStatus.PENDING
        job.run += 1
        job.attempts = 0
        job.error = job.reason = ""
        job.stop_requested = False
        job.claimed_at = job.completed_at = None
        job.turn = self._next_turn()
        self._session.add(job)
        return job

    def rerun(self, job: Job) -> None:
        """Give an open job whose workflow is gone a new run in the same place."""
        job.status = JobStatus.PENDING
        job.run += 1
        job.claimed_at = None
        self._session.add(job)

    def update(self, job_id: str, **values: object) -> None:
        """Set columns of a job."""
        self._session.exec(update(Job).where(col(Job.id) == job_id).values(**values))

    def request_stop(self, job_id: str) -> bool:
        """Ask an open job to stop; false when it had ended already."""
        asked = self._session.exec(
            update(Job).where(col(Job.id) == job_id, col(Job.status).in_(OPEN)).values(stop_requested=True)
        )
        return asked.rowcount > 0

    def stopping(self, ids: Iterable[str]) -> Sequence[str]:
        """Return those of the given jobs that were asked to stop."""
        return self._session.exec(select(Job.id).where(col(Job.id).in_(list(ids)), col(Job.stop_requested))).all()

    def running_in(self, lane: LaneKey) -> Sequence[str]:
        """Return the job that holds this lane now, if any."""
        return self._session.exec(select(Job.id).where(Job.lane == lane, Job.status == JobStatus.RUNNING)).all()

    def waiting_in(self, lane: LaneKey) -> int:
        """Count the jobs that wait in this lane."""
        return self._session.exec(
            select(func.count()).select_from(Job).where(Job.lane == lane, Job.status == JobStatus.PENDING)
        ).one()

    def running(self) -> Sequence[Job]:
        """Return every job whose workflow should exist."""
        return self._session.exec(select(Job).where(Job.status == JobStatus.RUNNING)).all()

    def restarts_of(self, job_id: str) -> Sequence[Job]:
        """Return the jobs that restarted this one."""
        return self._session.exec(select(Job).where(Job.restarted_from == job_id)).all()

    def _next_turn(self) -> int:
        last = self._session.exec(select(func.max(Job.turn))).one()
        return (last or 0) + 1
