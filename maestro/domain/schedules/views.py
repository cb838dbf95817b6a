"""Views of schedules for operators, with descriptions in plain English such as "at 09:00 on working days"."""

from calendar import month_name
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from pydantic import Field

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.errors import InvalidEdit
from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.schedules.edits import ScheduleKind, SchedulePreviewRequest, Script, read_script
from maestro.domain.schedules.expressions import (
    CronTimes,
    Interval,
    Once,
    Schedule,
    check_jitter,
    first_utc_moment,
    read_schedule,
    read_stored_schedule,
    read_zone,
)
from maestro.domain.schedules.schedule import ScheduleColumns
from maestro.domain.schedules.times import next_skipped_time, next_times
from maestro.domain.values import Page, Value, View

_UNITS = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
)
_WEEKDAYS = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")
_WEEKS = {frozenset(range(7)): "", frozenset(range(1, 6)): "on working days", frozenset({0, 6}): "at weekends"}
_MOST_TIMES = 4
"""The most times of a day that a description lists; for more times, it gives an interval or a count."""


def describe_schedule(schedule: Schedule, zone: ZoneInfo) -> str:
    """Describe in words, in the local time of a zone, when a schedule runs."""
    match schedule:
        case Interval(length):
            return _describe_interval(length)
        case Once(moment):
            wall = moment.astimezone(zone)
            return f"once, on {wall.day} {wall:%B %Y at %H:%M:%S}".removesuffix(":00")
        case CronTimes(months=months):
            in_months = f"in {_join_words([month_name[month] for month in sorted(months)])}" if len(months) < 12 else ""
            return " ".join(filter(None, (_describe_times(schedule), _describe_days(schedule), in_months)))


def describe_distance(moment: datetime, now: datetime) -> str:
    """Describe how far a time is from now in the largest unit that fits, such as "in 3 hours" or "2 days ago"."""
    away = moment - now
    name, unit = next(((name, unit) for name, unit in _UNITS if abs(away) >= unit), ("", None))
    if unit is None:
        return "now"
    count = abs(away) // unit
    words = f"{count} {name}" if count == 1 else f"{count} {name}s"
    return f"in {words}" if away > timedelta() else f"{words} ago"


def _describe_interval(length: timedelta) -> str:
    name, unit = next((name, unit) for name, unit in _UNITS if not length % unit)
    count = length // unit
    return f"every {name}" if count == 1 else f"every {count} {name}s"


def _describe_times(cron: CronTimes) -> str:
    hours, minutes = sorted(cron.hours), sorted(cron.minutes)
    if len(hours) * len(minutes) <= _MOST_TIMES:
        return f"at {_join_words([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    step = _even_step(minutes, 60)
    if len(minutes) == 1 and (span := _even_step(hours, 24)):
        return _describe_interval(timedelta(hours=span)) + (f" at minute {minutes[0]}" if minutes[0] else "")
    if step and len(hours) == 24:
        return _describe_interval(timedelta(minutes=step))
    if step and hours == list(range(hours[0], hours[-1] + 1)):
        return f"{_describe_interval(timedelta(minutes=step))} from {hours[0]:02}:00 to {hours[-1]:02}:59"
    return f"{len(hours) * len(minutes)} times a day"


def _even_step(numbers: Sequence[int], whole: int) -> int | None:
    """Return the step between the numbers if they divide ``whole`` evenly, else None."""
    step = whole // len(numbers)
    return step if len(numbers) > 1 and list(numbers) == list(range(0, whole, step)) else None


def _describe_days(cron: CronTimes) -> str:
    by_month = f"on day {_join_words(list(map(str, sorted(cron.days))))} of the month" if len(cron.days) < 31 else ""
    monday_first = sorted(cron.weekdays, key=lambda day: (day - 1) % 7)
    by_week = _WEEKS.get(cron.weekdays, f"on {_join_words([_WEEKDAYS[day] for day in monday_first])}")
    if by_week or by_month:
        return " or ".join(filter(None, (by_month, by_week)))
    return "every day" if len(cron.hours) * len(cron.minutes) <= _MOST_TIMES else ""


def _join_words(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


class ScheduleState(StrEnum):
    """The state of a schedule; if several states apply, the first one in this order counts."""

    ENDED = "ended"
    PAUSED = "paused"
    AGENT_PAUSED = "agent_paused"
    ACTIVE = "active"


class LastRun(View):
    """The job of a schedule's last run; ``status`` is null after the job was deleted, ``dropped`` for a skipped run.

    ``reason`` says why the run failed or was skipped.
    """

    job_id: str
    status: JobStatus | None
    reason: str = ""
    created_at: datetime | None


class ScheduleView(View):
    """A heartbeat or a cron with its state and its last run; ``ref`` is its public id, such as cron-3.

    ``when`` describes the schedule in words; ``next_runs`` are the next five due times in the schedule's zone, empty
    unless the schedule is active. ``reason`` says why the schedule is not active. ``skipped`` counts due times without
    a run, ``failures`` failed runs in a row. ``follow_error`` says why the Temporal Schedule differs from these values.
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


class SchedulePage(Page[ScheduleView]):
    """A page of schedules: heartbeats before crons, each kind oldest first."""


class SchedulePreview(View):
    """A schedule in words and its next five due times in its zone; ``note`` names a time that a clock change moves."""

    schedule: str
    timezone: str
    when: str
    next_runs: tuple[datetime, ...]
    note: str = ""


class StartedRun(View):
    """The job of a run that an operator started."""

    job_id: str


class BackfilledTime(View):
    """A past due time, in UTC, and its job; ``ran`` means that the job existed before and stays unchanged."""

    time: datetime
    job_id: str
    ran: bool


class BackfillView(View):
    """The result of a backfill: the jobs that it starts, or would start for a ``preview``; they run one by one."""

    preview: bool
    count: int
    times: tuple[BackfilledTime, ...]


class ScheduleFilter(Value):
    """A filter for schedules; a field that is None does not restrict the result."""

    kind: ScheduleKind | None = Field(default=None, description="only heartbeats, or only crons")
    agent: str | None = Field(default=None, description="only schedules of this agent")
    state: ScheduleState | None = Field(default=None, description="only schedules in this state")


def schedule_state(planned: ScheduleColumns, agent: Agent) -> ScheduleState:
    if planned.ended_at is not None:
        return ScheduleState.ENDED
    if not planned.enabled or planned.paused_reason:
        return ScheduleState.PAUSED
    return ScheduleState.ACTIVE if agent.status is AgentStatus.ACTIVE else ScheduleState.AGENT_PAUSED


def schedule_view(planned: ScheduleColumns, agent: Agent, job: Job | None, now: datetime) -> ScheduleView:
    """Build the view of a schedule; ``job`` is the job of the last run, None without a run or if it was deleted."""
    state = schedule_state(planned, agent)
    when, next_runs = planned.schedule, tuple[datetime, ...]()
    with suppress(InvalidEdit):  # an invalid expression is shown as written, without times
        zone = read_zone(planned.zone)
        schedule = read_stored_schedule(planned.schedule, planned.zone, planned.anchored_at)
        when = describe_schedule(schedule, zone)
        if state is ScheduleState.ACTIVE:
            times = next_times(schedule, zone, planned.anchored_at, now)
            next_runs = tuple(time.astimezone(zone) for time in times)
    script = getattr(planned, "script", "")
    last_run = LastRun(job_id=planned.last_job_id, status=None, created_at=None) if planned.last_job_id else None
    if last_run is not None and job is not None:
        last_run = LastRun.from_row(job, job_id=job.id)
    return ScheduleView.from_row(
        planned,
        ref=planned.ref,
        kind=ScheduleKind(planned.kind),
        agent=agent.slug,
        timezone=planned.zone,
        when=when,
        script=read_script(script) if script else None,
        state=state,
        reason=_inactive_reason(planned, agent, state),
        next_run=next(iter(next_runs), None),
        next_runs=next_runs,
        last_run=last_run,
    )


def preview_view(request: SchedulePreviewRequest, now: datetime, shortest: timedelta) -> SchedulePreview:
    """Build the preview of a schedule as if created now; raises ``InvalidEdit`` if the expression is not valid."""
    schedule, note = read_schedule(request.schedule, request.timezone, now, shortest), ""
    check_jitter(schedule, request.jitter_seconds)
    zone = read_zone(request.timezone)
    skipped = next_skipped_time(schedule, zone, now) if isinstance(schedule, CronTimes) and schedule.fixed else None
    if skipped is not None:
        night = f"On {skipped:%Y-%m-%d} the clocks of {zone.key} go forward over {skipped:%H:%M}"
        note = f"{night}: that run comes at {first_utc_moment(skipped, zone).astimezone(zone):%H:%M}."
    return SchedulePreview(
        schedule=request.schedule,
        timezone=request.timezone,
        when=describe_schedule(schedule, zone),
        next_runs=tuple(time.astimezone(zone) for time in next_times(schedule, zone, now, now)),
        note=note,
    )


def _inactive_reason(planned: ScheduleColumns, agent: Agent, state: ScheduleState) -> str:
    match state:
        case ScheduleState.ENDED:
            ended = planned.ended_at
            return f"the only run was on {ended.astimezone(UTC):%Y-%m-%d at %H:%M} UTC" if ended is not None else ""
        case ScheduleState.PAUSED:
            return planned.paused_reason or "an operator paused the schedule"
        case ScheduleState.AGENT_PAUSED:
            return f"the agent {agent.slug} is {agent.status}"
        case _:
            return ""
