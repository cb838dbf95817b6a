"""Schedules as operators see them, on API, command line and page alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from pydantic import Field

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import InvalidEdit
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.schedules.cron import CronTimes
from maestro.domain.schedules.descriptions import in_words
from maestro.domain.schedules.edits import ScheduleKind, SchedulePreviewRequest
from maestro.domain.schedules.expressions import (
    Schedule,
    check_jitter,
    first_moment_of,
    read_schedule,
    read_zone,
    recall_schedule,
)
from maestro.domain.schedules.schedule import ScheduleColumns
from maestro.domain.schedules.scripts import Script, read_script
from maestro.domain.schedules.times import next_times, passed_over
from maestro.domain.values import Value, View


class ScheduleState(StrEnum):
    """Whether it runs; the first that is so counts."""

    ENDED = "ended"
    PAUSED = "paused"
    AGENT_PAUSED = "agent_paused"
    ACTIVE = "active"


class LastRun(View):
    """The job of the last run; ``status`` is null when the job is gone.

    ``reason`` says why the run was skipped (its status is ``dropped``) or failed.
    """

    job_id: str
    status: JobStatus | None
    reason: str = ""
    created_at: datetime | None


class ScheduleView(View):
    """A heartbeat or a cron, and what came of it; ``ref`` is its name outside, such as cron-3.

    ``when`` says the schedule in words, ``next_runs`` are the next five times, in its zone, of one that is active.
    ``reason`` says why one is not: who or what paused it. ``skipped`` counts times that passed without a run,
    ``failures`` those in a row. ``follow_error`` is why Temporal does not run it as it stands here.
    """

    ref: str
    kind: ScheduleKind
    agent: str
    name: str
    schedule: str
    timezone: str
    when: str
    jitter_seconds: int
    prompt: str
    script: Script | None
    platform: str
    account: str
    channel: str
    thread: str
    enabled: bool
    state: ScheduleState
    reason: str
    next_run: datetime | None
    next_runs: tuple[datetime, ...]
    last_run: LastRun | None
    runs: int
    skipped: int
    failures: int
    follow_error: str
    created_by: str
    created_at: datetime
    updated_at: datetime


class SchedulePage(View):
    """Schedules, heartbeats first, the oldest first; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[ScheduleView, ...]
    next: str | None


class SchedulePreview(View):
    """A schedule in words, and its next five times in its zone; ``note`` tells of a time that the clocks pass over."""

    schedule: str
    timezone: str
    when: str
    next_runs: tuple[datetime, ...]
    note: str = ""


class StartedRun(View):
    """The job that was begun."""

    job_id: str


class BackfilledTime(View):
    """A time that passed, in UTC, and its job; ``ran`` says that it had one already, which is left as it is."""

    time: datetime
    job_id: str
    ran: bool


class BackfillView(View):
    """What is made up for: so many jobs are begun, or would be; they run one after the other."""

    preview: bool
    count: int
    times: tuple[BackfilledTime, ...]


class ScheduleFilter(Value):
    """Which schedules to show; what is None does not matter."""

    kind: ScheduleKind | None = Field(default=None, description="only heartbeats, or only crons")
    agent: str | None = Field(default=None, description="only those of this agent")
    state: ScheduleState | None = Field(default=None, description="only those in this state")


@dataclass(frozen=True)
class ScheduleRecord:
    """A row with what other tables say of it: whose it is, and the job of its last run."""

    planned: ScheduleColumns
    agent: Agent
    last: Job | None


def state_of(planned: ScheduleColumns, agent: Agent) -> ScheduleState:
    """Say whether a schedule runs."""
    if planned.ended_at is not None:
        return ScheduleState.ENDED
    if not planned.enabled or planned.paused_reason:
        return ScheduleState.PAUSED
    return ScheduleState.ACTIVE if agent.status is AgentStatus.ACTIVE else ScheduleState.AGENT_PAUSED


def schedule_view(plan: ScheduleRecord, now: datetime) -> ScheduleView:
    """Show a schedule."""
    planned, state = plan.planned, state_of(plan.planned, plan.agent)
    when, coming = _coming(planned, now)
    next_runs = coming if state is ScheduleState.ACTIVE else ()
    script = getattr(planned, "script", "")
    own = {"agent", "state", "reason", "timezone", "when", "next_run", "next_runs", "last_run", "script", "kind", "ref"}
    return ScheduleView(
        **planned.model_dump(include=set(ScheduleView.model_fields) - own),
        ref=planned.ref,
        kind=ScheduleKind(planned.kind),
        agent=plan.agent.slug,
        timezone=planned.zone,
        when=when,
        script=read_script(script) if script else None,
        state=state,
        reason=_reason(plan, state),
        next_run=next(iter(next_runs), None),
        next_runs=next_runs,
        last_run=_last(plan),
    )


def schedule_page(found: Sequence[ScheduleView], limit: int) -> SchedulePage:
    """Show up to ``limit`` schedules of one more that was looked for."""
    page = tuple(found[:limit])
    return SchedulePage(items=page, next=page[-1].ref if len(found) > limit else None)


def preview_view(wish: SchedulePreviewRequest, now: datetime, shortest: timedelta) -> SchedulePreview:
    """Show when a schedule would come if it were made now; raises ``InvalidEdit`` for what is none."""
    schedule = read_schedule(wish.schedule, wish.timezone, now, shortest)
    check_jitter(schedule, wish.jitter_seconds)
    zone = read_zone(wish.timezone)
    times = next_times(schedule, zone, now, now)
    return SchedulePreview(
        schedule=wish.schedule,
        timezone=wish.timezone,
        when=in_words(schedule, zone),
        next_runs=tuple(time.astimezone(zone) for time in times),
        note=_note(schedule, zone, now),
    )


def _note(schedule: Schedule, zone: ZoneInfo, now: datetime) -> str:
    """Say when the clocks next go forward over a time, and when it comes instead."""
    wall = passed_over(schedule, zone, now) if isinstance(schedule, CronTimes) and schedule.fixed else None
    if wall is None:
        return ""
    instead = first_moment_of(wall, zone).astimezone(zone)
    night = f"On {wall:%Y-%m-%d} the clocks of {zone.key} go forward over {wall:%H:%M}"
    return f"{night}: it comes at {instead:%H:%M} then."


def _coming(planned: ScheduleColumns, now: datetime) -> tuple[str, tuple[datetime, ...]]:
    """Return a schedule in words and its next times; as it was written, and none, for one that nobody can read."""
    try:
        zone = read_zone(planned.zone)
        schedule = recall_schedule(planned.schedule, planned.zone, planned.anchored_at)
    except InvalidEdit:
        return planned.schedule, ()
    times = next_times(schedule, zone, planned.anchored_at, now)
    return in_words(schedule, zone), tuple(time.astimezone(zone) for time in times)


def _reason(plan: ScheduleRecord, state: ScheduleState) -> str:
    match state:
        case ScheduleState.ENDED:
            ended = plan.planned.ended_at
            return f"it ran on {ended.astimezone(UTC):%Y-%m-%d at %H:%M} UTC" if ended is not None else ""
        case ScheduleState.PAUSED:
            return plan.planned.paused_reason or "somebody paused it"
        case ScheduleState.AGENT_PAUSED:
            return f"the agent {plan.agent.slug} is {plan.agent.status}"
        case _:
            return ""


def _last(plan: ScheduleRecord) -> LastRun | None:
    if not plan.planned.last_job_id:
        return None
    job = plan.last
    return LastRun(
        job_id=plan.planned.last_job_id,
        status=job.status if job is not None else None,
        reason=job.reason if job is not None else "",
        created_at=job.created_at if job is not None else None,
    )
