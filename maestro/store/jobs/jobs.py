"""Queries for jobs: their positions in lanes (queues), their waits and their ends."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, bindparam, case, func, inspect, literal, update
from sqlalchemy.orm import aliased
from sqlmodel import col, or_, select

from maestro.domain.columns import UtcDateTime
from maestro.domain.errors import JobEnded, Stopped, WaitReason
from maestro.domain.jobs.job import OPEN, Job, JobEnding, JobStatus, Wait
from maestro.domain.messages import Address, LaneKey
from maestro.store.engine.repository import read_once, require_found, with_values
from maestro.store.engine.scopes import JOB
from maestro.store.engine.statements import DeferringDriver, PreparedStatement, is_one_of, row_update
from maestro.store.jobs.claims import HOLDS_LANE, Claims, NextPosition

MODEL_WAITS = (WaitReason.ACCOUNT, WaitReason.PROVIDER, WaitReason.BUDGET)
"""The reasons of waits that end when a model is available."""

SPREAD = 10
"""The number of waiting jobs that resume within one cool-down of a failing provider."""


_LOCK_LANE = """SELECT pg_advisory_xact_lock(hashtextextended('start:' || lane, 0))
    FROM queue WHERE id = %s AND lane IS NOT NULL"""


class JobStart(NamedTuple):
    """A job's start; ``is_new``: no step of the job was ever attempted.

    ``has_merged``: other jobs are merged into the job.
    """

    is_new: bool
    has_merged: bool


@cache
def _update_open(*names: str) -> PreparedStatement:
    """Return the statement that updates columns of an open job without a stop request."""
    values: dict[str, Any] = {name: bindparam(f"its_{name}") for name in names}
    open_one = (is_one_of(col(Job.status), OPEN), ~col(Job.stop_requested))
    return PreparedStatement(update(Job).where(col(Job.id) == bindparam("its_id"), *open_one).values(values))


class Jobs(Claims):
    """Queries for jobs (rows of the table ``queue``)."""

    _STOPPED_WHILE_WAITING = select(Job.id).where(
        Job.status == JobStatus.RUNNING, col(Job.stop_requested), ~Claims._INSIDE
    )
    _DUE = (
        col(Job.status) == JobStatus.WAITING,
        # A wait with a start in the future counts as over: the clock was set back.
        or_(col(Job.wake_at) <= bindparam("present"), col(Job.waits_since) > bindparam("present")),
    )
    _ANY_DUE = PreparedStatement(select(Job.id).where(*_DUE).limit(1))
    _GO_ON = PreparedStatement(
        update(Job)
        .where(*_DUE)
        .values(
            status=JobStatus.PENDING,
            run=col(Job.run) + 1,
            attempts=0,
            recoveries=0,
            claimed_at=None,
            waits_for=None,
            waits_since=None,
            wake_at=None,
        )
    )
    _ALL_PENDING = select(func.count()).select_from(Job).where(Job.status == JobStatus.PENDING)
    _PENDING = PreparedStatement(_ALL_PENDING)
    _WAITING = PreparedStatement(_ALL_PENDING.where(col(Job.lane) == bindparam("its_lane")))
    _END = PreparedStatement(
        update(Job)
        .where(col(Job.id) == bindparam("job_id"), is_one_of(col(Job.status), OPEN))
        .values(
            {name: bindparam(f"its_{name}") for name in ("status", "error", "reason", "completed_at")}
            | dict.fromkeys(("waits_for", "waits_since", "wake_at"))
        )
    )
    _NEXT_TURN = PreparedStatement(select(NextPosition()))
    _HOLDER, _MERGED = aliased(Job), aliased(Job)
    _STARTED = PreparedStatement(
        update(Job)
        .where(
            col(Job.id) == bindparam("job_id"),
            col(Job.status) == JobStatus.PENDING,
            ~select(_HOLDER.id)
            .where(
                col(_HOLDER.lane) == col(Job.lane),
                col(_HOLDER.status) == JobStatus.RUNNING,
                col(_HOLDER.id) != col(Job.id),
            )
            .exists(),
        )
        .values(
            status=JobStatus.RUNNING, started_at=func.coalesce(col(Job.started_at), bindparam("now", type_=UtcDateTime))
        )
        # SQLAlchemy omits table names in RETURNING, so the subquery must not use columns of the updated table.
        .returning(
            *inspect(Job).columns, select(_MERGED.id).where(col(_MERGED.merged_into) == bindparam("job_id")).exists()
        )
    )

    def add(self, job: Job) -> Job:
        """Add a job; if it has a lane, it is last in that lane."""
        self._link.require_alone()
        job.created_at, job.process = self._now, self._link.process
        job.turn = self._compute_next_position()
        return self._save_objects(job)

    def get(self, job_id: str) -> Job:
        """Return the job with this id; raises ``NotFound``."""
        return require_found(self._session.get(Job, job_id), f"job {job_id} does not exist")

    def find(self, job_id: str) -> Job | None:
        """Return the job with this id, or None if there is none."""
        return self._session.get(Job, job_id)

    @read_once
    def read(self, job_id: str) -> Job:
        """Return a job by id as a read-only row, which costs less than ``get``; raises ``NotFound``."""
        return require_found(self._read_model_by(Job, id=job_id), f"job {job_id} does not exist")

    def update_open(self, job_id: str, **values: object) -> None:
        """Update columns of an open job; raises ``Stopped`` after a stop request, ``JobEnded`` after the job's end."""
        self._require_own(job_id)
        known = self._cached_values().get(("read", (job_id,)))
        its = {f"its_{name}": value for name, value in values.items()}
        if not self._run_change(_update_open(*values), its_id=job_id, **its):
            if self.read(job_id).status.ended:
                raise JobEnded(f"job {job_id} is {self.read(job_id).status}")
            raise Stopped(f"a person stopped job {job_id}")
        if known is not None:
            self.cache_value(with_values(known, **values))

    def update_later(self, job_id: str, **values: object) -> None:
        """Update columns of a job; all such updates of the job share one statement, run before the commit."""
        self.cache_value(with_values(self.read(job_id), **values))
        self._link.write_later(self._noun, job_id, values, lambda noted: self.update_job(job_id, **noted))

    def cache_value(self, job: Job) -> None:
        """Cache the row of a job, which the caller has read or written, for this transaction."""
        self._cached_values()[("read", (job.id,))] = job

    def read_status(self, job_id: str) -> JobStatus:
        """Return the current status of a job."""
        return self.read(job_id).status

    def count_pending(self) -> int:
        """Count the pending jobs."""
        return int(self._read_value(self._PENDING))

    def mark_started(self, job_id: str) -> JobStart | None:
        """Mark a pending job as running; while another job of its lane runs, change nothing and return None."""
        if not self._link.sqlite:
            # Two jobs of a lane that begin at once would both see a free lane; one would fail at the unique index.
            cast("DeferringDriver", self._link.driver).defer(_LOCK_LANE, [job_id])
        for *row, has_merged in self._run_returning(self._STARTED, job_id=job_id, now=self._now):
            job = self._STARTED.convert_row(Job, row)
            self.cache_value(job)
            return JobStart(is_new=job.run == 1 and job.attempts == 0, has_merged=has_merged)
        return None

    def end_job(self, job_id: str, ending: JobEnding) -> bool:
        """End an open job, which releases its lane; return false if the job had already ended."""
        self._require_own(job_id)
        its = {f"its_{name}": value for name, value in ending}
        return self._run_change(self._END, job_id=job_id, its_completed_at=self._now, **its) > 0

    def reopen_job(self, job: Job) -> Job:
        """Make an ended job pending again, to continue at its failed step; it is last in its lane."""
        job.status = JobStatus.PENDING
        job.run += 1
        job.attempts = job.recoveries = 0
        job.error = job.reason = ""
        job.stop_requested = False
        job.merged_into = None
        job.claimed_at = job.completed_at = job.wake_at = job.waits_since = job.waits_for = None
        job.told_to_wait = False
        job.turn = self._compute_next_position()
        self._session.add(job)
        return job

    def restart_workflow(self, job: Job, *, counted: bool = True) -> None:
        """Make an open job without a workflow pending again, at its old position in the lane.

        ``counted`` says that this is a recovery from a fault.
        """
        job.status = JobStatus.PENDING
        job.run += 1
        job.recoveries += counted
        job.claimed_at = None
        self._session.add(job)

    def update_job(self, job_id: str, **values: object) -> None:
        """Update columns of a job."""
        self._require_own(job_id)
        its = {f"its_{name}": value for name, value in values.items()}
        known = self._cached_values().get(("read", (job_id,)))
        self._write(row_update(Job, *values), its_id=job_id, **its)
        if known is not None:
            self.cache_value(with_values(known, **values))

    def park_job(self, job_id: str, wait: Wait) -> None:
        """Let a running job wait: it releases its lane and keeps its position, to be next when it resumes.

        The job resumes at ``wait.wake_at``, or sooner if ``wake_job`` is called; a call since the last resume counts.
        """
        waits = update(Job).where(col(Job.id) == job_id, col(Job.status) == JobStatus.RUNNING)
        at = wait.wake_at
        if at is not None and wait.reason is WaitReason.PROVIDER:
            # After a failure of a provider, its waiting jobs resume one after the other, not all at once.
            waiting = select(func.count()).where(Job.status == JobStatus.WAITING, Job.waits_for == WaitReason.PROVIDER)
            at += (at - self._now) / SPREAD * self._session.exec(waiting).one()
        sooner = case((col(Job.wake_at) < at, col(Job.wake_at)), else_=literal(at, UtcDateTime)) if at else Job.wake_at
        parked = waits.values(
            status=JobStatus.WAITING, waits_for=wait.reason, waits_since=self._now, wake_at=sooner, claimed_at=None
        )
        if self._run_statement(parked).rowcount and wait.reason is not WaitReason.PERSON:
            self._delay_later_jobs(job_id)

    def wake_job(self, job_id: str) -> None:
        """Resume a job that waits or is about to wait; do nothing for any other job."""
        self._wake_jobs(col(Job.id) == job_id)

    def wake_for_models(self, *reasons: WaitReason) -> None:
        """Resume the jobs that wait, or are about to wait, for a model; with ``reasons``, only for these reasons.

        Callers have changed accounts or budgets, or a provider has recovered. A job that still finds no model waits
        again.
        """
        self._wake_jobs(or_(col(Job.waits_for).in_(reasons or MODEL_WAITS), col(Job.status) == JobStatus.RUNNING))

    def has_due(self) -> bool:
        """Return whether the wait of a job is over."""
        return self._has_row(self._ANY_DUE, present=self._now)

    def resume_due(self) -> None:
        """Make each job whose wait is over pending again, at its old position in the lane."""
        self._run_change(self._GO_ON, present=self._now)

    def list_waiting_in(self, lane: LaneKey) -> Sequence[Job]:
        """Return the waiting jobs of a lane, the latest position first."""
        waiting = select(Job).where(Job.lane == lane, Job.status == JobStatus.WAITING)
        return self._find_all(waiting.order_by(col(Job.turn).desc()))

    def has_wait_notice(self, lane: LaneKey) -> bool:
        """Return whether the user was told that an open job of a lane waits, even if that job runs again now."""
        return self._has_any(select(Job.id).where(Job.lane == lane, col(Job.status).in_(OPEN), col(Job.told_to_wait)))

    def request_stop(self, job_id: str) -> bool:
        """Ask an open job to stop; return false if the job had already ended."""
        open_job = update(Job).where(col(Job.id) == job_id, col(Job.status).in_(OPEN))
        return self._run_statement(open_job.values(stop_requested=True)).rowcount > 0

    def list_stopped_without_step(self) -> Sequence[str]:
        """Return the ids of running jobs with a stop request that no running step can notice."""
        return self._run_statement(self._STOPPED_WHILE_WAITING).scalars().all()

    def is_pending_notice(self, address: Address, text: str) -> bool:
        """Return whether a notice with this text is about to be sent to this address."""
        at_address = (getattr(Job, name) == value for name, value in address.model_dump().items())
        return self._has_any(select(Job.id).where(Job.status == JobStatus.PENDING, Job.notice == text, *at_address))

    def find_lane_head(self, lane: LaneKey) -> Job | None:
        """Return the job that holds a lane or is next in it, ignoring jobs that a newer message interrupted."""
        holding = select(Job).where(Job.lane == lane, col(Job.status).in_(HOLDS_LANE), col(Job.merged_into).is_(None))
        return self._find_first(holding.order_by(col(Job.status) != JobStatus.RUNNING, col(Job.turn)).limit(1))

    def find_running_in(self, lane: LaneKey) -> Sequence[str]:
        """Return the id of the job that holds a lane now, as a list of at most one id."""
        return self._find_all(select(Job.id).where(Job.lane == lane, Job.status == JobStatus.RUNNING))

    def count_pending_in(self, lane: LaneKey) -> int:
        """Count the pending jobs of this lane."""
        return int(self._read_value(self._WAITING, its_lane=lane))

    def list_running(self) -> Sequence[Job]:
        """Return the running jobs; each of them should have a workflow."""
        return self._find_all(select(Job).where(Job.status == JobStatus.RUNNING))

    def list_ancestor_ids(self, job: Job) -> list[str]:
        """Return the ids of the jobs that a job restarts, directly or through other restarts, newest first."""
        ancestors: list[str] = []
        earlier = job.restarted_from
        while earlier is not None and earlier not in ancestors:
            ancestors.append(earlier)
            earlier = self.get(earlier).restarted_from
        return ancestors

    def _require_own(self, job_id: str) -> None:
        """Raise ``ScopeTooNarrow`` in a transaction whose scope does not include this job."""
        if self._link.scoped is not None and self._link.scoped.scope != (JOB, job_id):
            self._link.require_alone()

    def _compute_next_position(self) -> int:
        return int(self._read_value(self._NEXT_TURN))

    def _delay_later_jobs(self, job_id: str) -> None:
        """Delay the jobs behind a job in its lane that wait for a model, so that none resumes before it."""
        job = select(Job.lane, Job.turn, Job.wake_at).where(col(Job.id) == job_id, col(Job.lane).is_not(None))
        for lane, turn, wake_at in self._run_statement(job).all():
            later = col(Job.lane) == lane, col(Job.turn) > turn, col(Job.wake_at) < wake_at
            waiting = col(Job.status) == JobStatus.WAITING, col(Job.waits_for).in_(MODEL_WAITS)
            self._run_statement(update(Job).where(*later, *waiting).values(wake_at=wake_at))

    def _wake_jobs(self, condition: ColumnElement[bool]) -> None:
        open_ones = col(Job.status).in_((JobStatus.RUNNING, JobStatus.WAITING))
        self._run_statement(update(Job).where(condition, open_ones).values(wake_at=self._now))
