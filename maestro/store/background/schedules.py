"""Queries for schedules (heartbeats and crons): edits by operators, runs, and the state of schedules in Temporal."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, count, islice, takewhile
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, not_, or_, update
from sqlmodel import col, select
from ulid import ULID

from maestro.domain.agents.agent import Agent, AgentStatus, paying_client_id
from maestro.domain.errors import Conflict, InvalidEdit
from maestro.domain.jobs.job import OPEN, Job, JobStatus
from maestro.domain.schedules.edits import BackfillRequest, NewSchedule, ScheduleChange, changed_columns, check_has_work
from maestro.domain.schedules.expressions import SHORTEST, check_jitter, read_schedule, read_stored_schedule, read_zone
from maestro.domain.schedules.schedule import (
    Cron,
    Heartbeat,
    ScheduleColumns,
    missed_single_run,
    new_run_job,
    runs_once,
    skip_reason,
)
from maestro.domain.schedules.times import times_after
from maestro.domain.schedules.views import (
    BackfilledTime,
    BackfillView,
    ScheduleFilter,
    ScheduleState,
    ScheduleView,
    schedule_view,
)
from maestro.store.agents.agents import Agents
from maestro.store.engine.repository import LazyRepository, Repository, require_found
from maestro.store.engine.statements import PreparedStatement, is_one_of
from maestro.store.jobs.jobs import Jobs
from maestro.store.users.audit import Audit

KINDS: tuple[type[ScheduleColumns], ...] = (Heartbeat, Cron)

MOST_TIMES = 100
"""The most runs that one backfill may begin."""


class FollowedSchedule(NamedTuple):
    """The outcome of sending a schedule to Temporal: the digest of the definition that was sent, or the error."""

    planned: ScheduleColumns
    digest: str
    error: str = ""


class Schedules(Repository):
    """Queries for schedules by ``ref`` (such as cron-3), and edits of schedules by operators.

    These methods do not call Temporal; a loop updates Temporal from the rows (ADR 17). ``actor`` is recorded in the
    audit log as the author; ``shortest`` is the shortest interval that operators may set.
    """

    _agents = LazyRepository(Agents)

    def get(self, ref: str) -> ScheduleColumns:
        """Return the schedule with this ref; raises ``NotFound``."""
        return require_found(
            self.find(ref), f"there is no schedule {ref!r}; `maestro schedules list` shows all schedules"
        )

    def find(self, ref: str | None) -> ScheduleColumns | None:
        """Return the schedule with this ref, or None if there is none."""
        kind, number = _split_ref(ref or "")
        return self._session.get(kind, number) if kind is not None else None

    def list_schedules(self) -> Sequence[ScheduleColumns]:
        """Return all schedules: heartbeats before crons, each oldest first."""
        return [planned for kind in KINDS for planned in self._session.exec(select(kind).order_by(col(kind.id)))]

    def list_followed_schedules(self) -> Sequence[tuple[ScheduleColumns, Agent]]:
        """Return all schedules with their agents: heartbeats before crons, each oldest first."""
        queries = (
            select(kind, Agent).join(Agent, col(kind.agent_id) == col(Agent.id)).order_by(col(kind.id))
            for kind in KINDS
        )
        return [(planned, agent) for query in queries for planned, agent in self._session.exec(query)]

    def list_schedules_of_agent(self, agent: Agent) -> Sequence[ScheduleColumns]:
        """Return all schedules of an agent: heartbeats before crons, each oldest first."""
        queries = (select(kind).where(kind.agent_id == agent.id).order_by(col(kind.id)) for kind in KINDS)
        return [planned for query in queries for planned in self._session.exec(query)]

    def list_schedule_page(
        self, schedule_filter: ScheduleFilter, after: str | None, limit: int
    ) -> Sequence[ScheduleView]:
        """Return views of up to ``limit`` schedules after a ref: heartbeats before crons, each oldest first."""
        views: list[ScheduleView] = []
        for kind in KINDS:
            if schedule_filter.kind not in (None, str(kind.kind)):
                continue
            page = _with_agents(kind).where(*_after_ref(kind, after)).order_by(col(kind.id))
            if schedule_filter.agent is not None:
                page = page.where(Agent.slug == schedule_filter.agent)
            if schedule_filter.state is not None:
                page = page.where(_state_condition(kind, schedule_filter.state))
            rows = self._session.exec(page.limit(limit - len(views)))
            views += [schedule_view(planned, agent, job, self._now) for planned, agent, job in rows]
        return views

    def build_schedule_view(self, planned: ScheduleColumns) -> ScheduleView:
        kind = type(planned)
        planned, agent, job = self._session.exec(_with_agents(kind).where(col(kind.id) == planned.id)).one()
        return schedule_view(planned, agent, job, self._now)

    def add_schedule(
        self, kind: type[ScheduleColumns], new: NewSchedule, actor: str, shortest: timedelta = SHORTEST
    ) -> ScheduleColumns:
        """Add a schedule.

        Raises ``InvalidEdit`` for a schedule that is invalid (docs/decisions.md: schedules) or has no work to do, and
        ``NotFound`` for an unknown agent. Raises ``Conflict`` for an archived agent and for a name that the agent
        already uses. An unnamed copy of one of the agent's schedules is also a ``Conflict``, so that an answer
        processed twice adds one schedule.
        """
        columns = new.column_values()
        check_jitter(read_schedule(new.schedule, new.timezone, self._now, shortest), new.jitter_seconds)
        check_has_work(kind.kind, new.prompt, str(columns.get("script", "")))
        agent = self._agents.get_unarchived_agent(new.agent)
        planned = kind(
            agent_id=agent.id or 0,
            anchored_at=self._now,
            created_by=actor,
            created_at=self._now,
            updated_at=self._now,
            **columns,
        )
        twin = next(
            (schedule.name for schedule in self.list_schedules_of_agent(agent) if schedule.is_duplicate_of(planned)),
            None,
        )
        if not planned.name and twin is not None:
            raise Conflict(f"the agent {agent.slug} has the same schedule already: {twin!r}; give this one a name")
        planned.name = self._choose_free_name(planned, agent)
        self._save_objects(planned)
        self._audit(actor, "create", planned, f"{agent.slug}/{planned.name}: {planned.schedule} ({planned.zone})")
        return planned

    def change_schedule(
        self, planned: ScheduleColumns, change: ScheduleChange, actor: str, shortest: timedelta = SHORTEST
    ) -> ScheduleColumns:
        """Change a schedule; raises the errors of ``add_schedule``."""
        values = changed_columns(planned, change, self._now, shortest)
        agent = self._agents.get_unarchived_agent(change.agent) if change.agent is not None else None
        if agent is not None and agent.id != planned.agent_id:
            values["agent_id"] = agent.id
        for name, value in values.items():
            setattr(planned, name, value)
        if values.keys() & {"name", "agent_id"}:
            planned.name = self._choose_free_name(planned, self._agents.get(planned.agent_id))
        if values:
            planned.updated_at = self._now
            self._session.flush()
            self._audit(actor, "change", planned, ", ".join(sorted(values)))
        return planned

    def remove_schedule(self, planned: ScheduleColumns, actor: str) -> None:
        """Delete a schedule; its jobs remain, and a running job continues."""
        self._delete_object(planned)
        self._audit(actor, "remove", planned, planned.name)

    def store_results(self, outcomes: Sequence[FollowedSchedule]) -> None:
        """Store the digest of each schedule's definition in Temporal, or the error if Temporal refused the schedule.

        If a schedule was changed meanwhile, its digest differs from the stored one, and the next update sends it again.
        """
        for planned, digest, error in outcomes:
            of_schedule = update(type(planned)).where(col(type(planned).id) == planned.id)
            self._run_statement(of_schedule.values(followed=digest, follow_error=error))

    def _audit(self, actor: str, action: str, planned: ScheduleColumns, detail: str) -> None:
        Audit(self._link, self._now).add_entry(actor, f"{planned.kind}.{action}", planned.ref, detail)

    def _choose_free_name(self, planned: ScheduleColumns, agent: Agent) -> str:
        present = {schedule.name for schedule in self.list_schedules_of_agent(agent) if schedule.ref != planned.ref}
        if planned.name in present:
            raise Conflict(f"the agent {agent.slug} has a schedule {planned.name!r} already; choose another name")
        numbered = (f"{planned.unnamed} {number}" for number in count(2))
        return planned.name or next(name for name in chain((planned.unnamed,), numbered) if name not in present)


def _split_ref(ref: str) -> tuple[type[ScheduleColumns] | None, int]:
    """Return the kind and the number of the schedule that a ref names; the kind is None for an invalid ref."""
    word, _, number = ref.rpartition("-")
    kind = next((kind for kind in KINDS if str(kind.kind) == word), None)
    fits = number.isascii() and number.isdecimal() and len(number) <= 18
    return (kind, int(number)) if kind is not None and fits else (None, 0)


def _after_ref(kind: type[ScheduleColumns], after: str | None) -> Iterator[ColumnElement[bool]]:
    """Yield the condition for schedules of a kind that follow a ref in lists; nothing for an invalid ref."""
    last, number = _split_ref(after or "")
    if last is kind:
        yield col(kind.id) > number
    elif last is not None and KINDS.index(kind) < KINDS.index(last):
        yield col(kind.id) < 0


def _with_agents(kind: type[ScheduleColumns]) -> Any:
    return (
        select(kind, Agent, Job)
        .join(Agent, col(Agent.id) == kind.agent_id)
        .outerjoin(Job, col(Job.id) == kind.last_job_id)
    )


def _state_condition(kind: type[ScheduleColumns], state: ScheduleState) -> ColumnElement[bool]:
    """Return the SQL condition for schedules in a state, equivalent to ``schedule_state``."""
    ended = col(kind.ended_at).is_not(None)
    paused = or_(not_(col(kind.enabled)), col(kind.paused_reason) != "")
    works = col(Agent.status) == AgentStatus.ACTIVE
    match state:
        case ScheduleState.ENDED:
            return ended
        case ScheduleState.PAUSED:
            return and_(not_(ended), paused)
        case ScheduleState.AGENT_PAUSED:
            return and_(not_(ended), not_(paused), not_(works))
        case _:
            return and_(not_(ended), not_(paused), works)


class ScheduleRuns(Repository):
    """Queries for the runs of schedules, and operations that begin runs, even of paused schedules.

    ``ref`` identifies a schedule, such as cron-3; ``actor`` is recorded in the audit log as the author.
    """

    _schedules = LazyRepository(Schedules)

    _OF_JOB = PreparedStatement(select(Job.schedule, Job.turn).where(col(Job.id) == bindparam("job_id")))
    _OPEN_JOB = PreparedStatement(
        select(Job.id)
        .where(col(Job.schedule) == bindparam("ref"), is_one_of(col(Job.status), OPEN))
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
    _OPEN_BELOW = PreparedStatement(select(_LED_TO.c.id).where(is_one_of(_LED_TO.c.status, OPEN)).limit(1))
    _LATER = PreparedStatement(
        select(Job.id)
        .where(
            col(Job.schedule) == bindparam("ref"),
            col(Job.turn) > bindparam("turn"),
            is_one_of(col(Job.status), (*OPEN, JobStatus.FAILED)),
        )
        .limit(1)
    )

    def uses_schedule_prompt(self, job: Job) -> bool:
        """Return whether the task of a job is exactly the prompt of its schedule, without any fetched content."""
        planned = self._schedules.find(job.schedule) if job.parent_id is None else None
        return planned is not None and job.task == planned.prompt

    def find_open_job(self, ref: str) -> str | None:
        """Return the id of an open job of the schedule, which prevents further runs; None without an open job.

        Jobs that operators began count, and so do open tasks that the schedule's newest job delegated. Otherwise
        delegated tasks could accumulate while the schedule's own jobs end quickly.
        """
        job_id: str | None = self._read_value(self._OPEN_JOB, ref=ref) or self._read_value(self._OPEN_BELOW, ref=ref)
        return job_id

    def count_run(self, job: Job) -> None:
        """Count the run of a schedule's job; the planned run of a one-time schedule ends the schedule."""
        planned = self._schedules.find(job.schedule)
        if planned is not None:
            planned.runs += 1
            planned.last_job_id = job.id
            if job.slot is not None and runs_once(planned):
                planned.ended_at = self._now

    def count_outcome(self, job_id: str, status: JobStatus) -> None:
        """Update the failure count of the schedule of a job that ended; do nothing for a job without a schedule.

        A completed job resets the count, unless a later job of the schedule, such as one that its script started, is
        open or failed.
        """
        ref, turn = self._read_row(self._OF_JOB, job_id=job_id) or (None, None)
        planned = self._schedules.find(ref)
        if planned is not None and status is JobStatus.FAILED:
            planned.failures += 1
        elif (
            planned is not None and status is JobStatus.COMPLETED and not self._has_row(self._LATER, ref=ref, turn=turn)
        ):
            planned.failures = 0

    def run_now(self, planned: ScheduleColumns, actor: str) -> str:
        """Begin a run of a schedule; return the job's id. Raises ``Conflict`` during a run or without active agent."""
        agent = self._require_runnable(planned)
        job_id = f"{planned.kind}-{ULID()}"
        self._begin_run(planned, agent, job_id, None)
        Audit(self._link, self._now).add_entry(actor, f"{planned.kind}.trigger", planned.ref, job_id)
        return job_id

    def begin_backfill_runs(
        self, planned: ScheduleColumns, span: BackfillRequest, prefix: str, actor: str
    ) -> BackfillView:
        """Begin a run for each time in a past period at which the schedule had no run, or preview these runs.

        The runs follow one after the other. ``prefix`` begins the job ids that Temporal would use for these times, so
        that a time with a run gets no second one. Raises ``InvalidEdit`` for future times and for more than
        ``MOST_TIMES``, and ``Conflict`` as ``run_now`` does.
        """
        span.check_range(self._now)
        times = self._find_run_times(planned, span, prefix)
        missed = [time for time in times if not time.ran]
        if missed and not span.preview:
            agent = self._require_runnable(planned)
            for time in missed:
                self._begin_run(planned, agent, time.job_id, time.time)
            Audit(self._link, self._now).add_entry(
                actor, f"{planned.kind}.backfill", planned.ref, f"{len(missed)} runs"
            )
        return BackfillView(preview=span.preview, count=len(missed), times=times)

    def begin_missed_run(self, ref: str, prefix: str) -> bool:
        """Begin the run that a one-time schedule missed; return whether a run was missed.

        Temporal skips a run if it learns of its time too late. If Temporal also begins the run, both use the same job
        id, so that only one run begins.
        """
        planned = self._schedules.find(ref)
        moment = missed_single_run(planned, self._now) if planned is not None else None
        agent = self._session.get(Agent, planned.agent_id) if planned is not None else None
        if planned is None or agent is None or moment is None:
            return False
        job_id = _temporal_job_id(prefix, moment)
        if skip_reason(planned, agent, self.find_open_job(ref)) or Jobs(self._link, self._now).find(job_id) is not None:
            return False
        self._begin_run(planned, agent, job_id, moment)
        return True

    def _find_run_times(
        self, planned: ScheduleColumns, span: BackfillRequest, prefix: str
    ) -> tuple[BackfilledTime, ...]:
        """Return the times of the schedule in a period, each with whether a job exists for that time."""
        schedule = read_stored_schedule(planned.schedule, planned.zone, planned.anchored_at)
        every = times_after(
            schedule, read_zone(planned.zone), planned.anchored_at, span.start - timedelta(microseconds=1)
        )
        passed = list(islice(takewhile(lambda time: time <= span.end, every), MOST_TIMES + 1))
        if len(passed) > MOST_TIMES:
            raise InvalidEdit(f"this period has more than {MOST_TIMES} times of the schedule; choose a shorter period")
        ids = [_temporal_job_id(prefix, time) for time in passed]
        known = set(self._session.exec(select(Job.id).where(col(Job.id).in_(ids))))
        return tuple(
            BackfilledTime(time=time, job_id=job_id, ran=job_id in known)
            for time, job_id in zip(passed, ids, strict=True)
        )

    def _require_runnable(self, planned: ScheduleColumns) -> Agent:
        """Return a schedule's agent; raises ``Conflict`` if the agent is not active or a run is still open."""
        agent = self._session.get(Agent, planned.agent_id)
        # The foreign key of the schedule guarantees that the agent exists.
        assert agent is not None
        if agent.status is not AgentStatus.ACTIVE:
            raise Conflict(f"the agent {agent.slug} is {agent.status}; make it active first")
        present = self.find_open_job(planned.ref)
        if present is not None:
            raise Conflict(f"job {present} of {planned.ref} is still open; wait for its end, or cancel the job")
        return agent

    def _begin_run(self, planned: ScheduleColumns, agent: Agent, job_id: str, slot: datetime | None) -> None:
        binding = Agents(self._link, self._now).find_binding(planned.address)
        job = new_run_job(planned, paying_client_id(agent, binding), job_id, slot)
        if slot is not None:
            job.lane = f"schedule:{planned.ref}"
        self.count_run(Jobs(self._link, self._now).add(job))


def _temporal_job_id(prefix: str, time: datetime) -> str:
    return f"{prefix}-{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
