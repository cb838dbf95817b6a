"""The Temporal schedule of a heartbeat or a cron: its calendars, and its creation and update.

See docs/decisions.md: schedules; ADR 17.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from itertools import groupby
from zoneinfo import ZoneInfo

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.common import TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.agents.agent import Agent
from maestro.domain.jobs.job import JobRef
from maestro.domain.precedence import Precedence, Priority, build_precedence
from maestro.domain.schedules.expressions import CronTimes, Interval, Once, read_stored_schedule, read_zone
from maestro.domain.schedules.expressions import Schedule as WrittenSchedule
from maestro.domain.schedules.schedule import ScheduleColumns, skip_reason
from maestro.domain.schedules.times import Hours, doubtful_hours, times_within
from temporal.dispatcher import TASK_TIMEOUT, RunSettings
from workflows.definitions import ScheduledWorkflow
from workflows.steps import AGENT, CHANNEL, search_attributes, temporal_priority

_UTC = "UTC"
_YEARS = range(2000, 2101)
"""The years that Temporal accepts in a calendar."""

_SECOND = timedelta(seconds=1)

CATCH_UP = timedelta(days=366)
"""The catch-up window: after an outage of Temporal, a single run replaces all times missed within this window."""

_REQUEST_TIMEOUT = timedelta(seconds=10)


def schedule_spec(schedule: WrittenSchedule, zone: ZoneInfo, anchor: datetime, now: datetime) -> ScheduleSpec:
    """Return the times of a schedule in Temporal's form, as ``maestro.domain.schedules.times`` computes them.

    The result contains the zone's clock changes of the coming year, so the result for a cron changes after each of
    them.
    """
    match schedule:
        case Interval(length):
            since = (anchor - datetime.fromtimestamp(0, UTC)) // _SECOND * _SECOND
            grid = ScheduleIntervalSpec(every=length, offset=since % length or None)
            return ScheduleSpec(intervals=[grid], time_zone_name=_UTC)
        case Once(moment):
            day = _calendar_day(moment.date())
            hour, minute, second = (number_ranges([number]) for number in (moment.hour, moment.minute, moment.second))
            calendar = replace(day, hour=hour, minute=minute, second=second)
            return ScheduleSpec(calendars=[calendar], time_zone_name=_UTC)
        case _:
            doubtful = doubtful_hours(schedule, zone, now.astimezone(zone).date())
            # A single time becomes an interval that began in 1970 and ends at that time for the first time. It cannot
            # be the offset of a longer interval, because Temporal skips an offset that is still in the future.
            lengths = [timedelta(seconds=int(moment.timestamp())) for moment in times_within(schedule, zone, doubtful)]
            return ScheduleSpec(
                calendars=list(cron_calendars(schedule, doubtful)),
                intervals=[ScheduleIntervalSpec(every=length) for length in lengths],
                time_zone_name=zone.key,
            )


def cron_calendars(cron: CronTimes, doubtful: Hours) -> Iterator[ScheduleCalendarSpec]:
    """Yield the calendars of a cron, without the hours that a clock change makes ambiguous."""
    for days, weekdays in cron.choices:
        whole = ScheduleCalendarSpec(
            minute=number_ranges(cron.minutes),
            hour=number_ranges(cron.hours),
            day_of_month=number_ranges(days),
            month=number_ranges(cron.months),
            day_of_week=number_ranges(weekdays),
        )
        if not doubtful:
            yield whole
            continue
        yield replace(whole, year=number_ranges(set(_YEARS) - {day.year for day in doubtful}))
        yield from calendars_without_days(whole, cron.months, days, doubtful)
        for day, hours in doubtful.items():
            if cron.hours - hours and day.day in days and day.month in cron.months:
                rest = number_ranges(cron.hours - hours)
                yield replace(_calendar_day(day), minute=whole.minute, hour=rest, day_of_week=whole.day_of_week)


def calendars_without_days(
    whole: ScheduleCalendarSpec, months: Set[int], days: Set[int], doubtful: Iterable[date]
) -> Iterator[ScheduleCalendarSpec]:
    """Yield calendars for the years with clock changes, without the days of these changes."""
    for year, of_year in groupby(sorted(doubtful), key=lambda day: day.year):
        changing = list(of_year)
        others = months - {day.month for day in changing}
        if others:
            yield replace(whole, year=number_ranges([year]), month=number_ranges(others))
        for month, of_month in groupby(changing, key=lambda day: day.month):
            quiet = days - {day.day for day in of_month}
            if quiet and month in months:
                yield replace(
                    whole, year=number_ranges([year]), month=number_ranges([month]), day_of_month=number_ranges(quiet)
                )


def _calendar_day(day: date) -> ScheduleCalendarSpec:
    return ScheduleCalendarSpec(
        year=number_ranges([day.year]), month=number_ranges([day.month]), day_of_month=number_ranges([day.day])
    )


def number_ranges(numbers: Iterable[int]) -> Sequence[ScheduleRange]:
    """Return the fewest ranges that contain exactly these numbers."""
    placed = enumerate(sorted(numbers))
    runs = ([number for _, number in run] for _, run in groupby(placed, key=lambda pair: pair[1] - pair[0]))
    return tuple(ScheduleRange(run[0], run[-1]) for run in runs)


@dataclass(frozen=True)
class DesiredSchedule:
    """The schedule that Temporal should have for a row; ``digest`` changes when any part of the schedule changes."""

    id: str
    schedule: Schedule
    attributes: TypedSearchAttributes
    digest: str


def schedule_id(main_queue: str, ref: str) -> str:
    """Return a schedule's id in Temporal; the queue in the id lets several installations share a namespace."""
    return f"{main_queue}-{ref}"


def desired_schedule(planned: ScheduleColumns, agent: Agent, settings: RunSettings, now: datetime) -> DesiredSchedule:
    """Return the schedule that Temporal should have for a row; raises ``InvalidEdit`` for an invalid rule."""
    temporal_id = schedule_id(settings.queues.main, planned.ref)
    zone = read_zone(planned.zone)
    written = read_stored_schedule(planned.schedule, planned.zone, planned.anchored_at)
    spec = schedule_spec(written, zone, planned.anchored_at, now)
    spec.jitter = timedelta(seconds=planned.jitter_seconds) or None
    idle = skip_reason(planned, agent, None)
    attributes = search_attributes(planned.platform, planned.kind, planned.channel, agent.slug)
    ref = settings.build_job_ref(planned.address, job_id="", run=1, schedule=planned.ref)
    # Only the run reads which client pays for the channel, so this priority counts for the agent's client.
    precedence = build_precedence(Priority.SCHEDULED, agent.client_id, None, planned.address)
    action = _start_action(temporal_id, settings, ref, attributes, precedence)
    schedule = Schedule(
        action=action,
        spec=spec,
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
        state=ScheduleState(
            note=f"{idle}: {planned.paused_reason}" if idle and planned.paused_reason else idle,
            paused=idle is not None,
            limited_actions=isinstance(written, Once),
            remaining_actions=int(isinstance(written, Once)),
        ),
    )
    parts = (
        *(schedule.spec, schedule.policy, schedule.state),
        *(ref, action.id, action.task_queue, action.static_summary, action.priority),
        *(pair.value for pair in attributes),
        *filter(None, [settings.codec_key]),  # Temporal keeps the payload of a schedule's runs for ever.
    )
    return DesiredSchedule(temporal_id, schedule, attributes, sha256(repr(parts).encode()).hexdigest()[:16])


def _start_action(
    temporal_id: str, settings: RunSettings, ref: JobRef, attributes: TypedSearchAttributes, precedence: Precedence
) -> ScheduleActionStartWorkflow:
    # The link shows all runs of the schedule, because Temporal chooses the id of each run.
    runs = f"[{ref.schedule}]({ref.dashboard}/queue?schedule={ref.schedule})" if ref.dashboard else ref.schedule
    return ScheduleActionStartWorkflow(
        ScheduledWorkflow.run,
        ref,
        id=temporal_id,
        task_queue=settings.queues.main,
        task_timeout=TASK_TIMEOUT,
        typed_search_attributes=attributes,
        static_summary=f"{ref.schedule} of {attributes[AGENT]}, channel {attributes[CHANNEL]}"[:200],
        static_details=f"A run of {runs}. Its job has the id of this workflow.",
        priority=temporal_priority(precedence, fair=settings.defaults.fair),
    )


async def put_schedule(client: Client, desired: DesiredSchedule, *, overwrite: bool) -> None:
    """Create or update a schedule in Temporal; raises the errors of the SDK.

    Without ``overwrite``, the update only reverts changes that were made in Temporal itself. Temporal still catches up
    on times missed in an outage when the schedule is updated right after the outage (measured).
    """
    if not await _update_schedule(client, desired, overwrite=overwrite):
        try:
            await client.create_schedule(
                desired.id, desired.schedule, search_attributes=desired.attributes, rpc_timeout=_REQUEST_TIMEOUT
            )
        except ScheduleAlreadyRunningError:  # Another process created the schedule first.
            await _update_schedule(client, desired, overwrite=overwrite)


async def remove_schedule(client: Client, temporal_id: str, main_queue: str) -> None:
    """Remove a schedule if it starts workflows on ``main_queue``; raises the errors of the SDK."""
    handle = client.get_schedule_handle(temporal_id)
    try:
        description = await handle.describe(rpc_timeout=_REQUEST_TIMEOUT)
        action = description.schedule.action
        if isinstance(action, ScheduleActionStartWorkflow) and action.task_queue == main_queue:
            await handle.delete(rpc_timeout=_REQUEST_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


async def _update_schedule(client: Client, desired: DesiredSchedule, *, overwrite: bool) -> bool:
    """Update a schedule; return False if the schedule does not exist in Temporal."""

    def change(present: ScheduleUpdateInput) -> ScheduleUpdate | None:
        if not overwrite and _is_unchanged(present.description.schedule, desired.schedule):
            return None
        return ScheduleUpdate(desired.schedule, search_attributes=desired.attributes)

    try:
        await client.get_schedule_handle(desired.id).update(change, rpc_timeout=_REQUEST_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


def _is_unchanged(present: Schedule, desired: Schedule) -> bool:
    """Return whether a schedule in Temporal is as Maestro set it; the payload of its runs is not compared."""
    old, new = present.action, desired.action
    return (
        isinstance(old, ScheduleActionStartWorkflow)
        and isinstance(new, ScheduleActionStartWorkflow)
        and (old.workflow, old.id, old.task_queue) == (new.workflow, new.id, new.task_queue)
        and present.spec == desired.spec
        and present.policy == desired.policy
        and (present.state.paused, present.state.note) == (desired.state.paused, desired.state.note)
    )
