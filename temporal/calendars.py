"""Writes a schedule as Temporal does: calendars, intervals, and single moments where clocks change (ADR 17)."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

from temporalio.client import ScheduleCalendarSpec, ScheduleIntervalSpec, ScheduleRange, ScheduleSpec

from maestro.domain.schedules.clock_changes import Hours, doubtful_hours, times_within
from maestro.domain.schedules.cron_times import CronTimes
from maestro.domain.schedules.once import Once
from maestro.domain.schedules.texts import Interval, Schedule

_UTC = "UTC"
_YEARS = range(2000, 2101)
"""All that Temporal knows."""

_SECOND = timedelta(seconds=1)


def spec_of(schedule: Schedule, zone: ZoneInfo, anchor: datetime, now: datetime) -> ScheduleSpec:
    """Return the times of a schedule, the same as ``maestro.domain.schedules.times`` gives.

    A zone's clock changes are told for the year to come, so what is told of a cron differs when one of them is over.
    """
    match schedule:
        case Interval(length):
            since = (anchor - datetime.fromtimestamp(0, UTC)) // _SECOND * _SECOND
            grid = ScheduleIntervalSpec(every=length, offset=since % length or None)
            return ScheduleSpec(intervals=[grid], time_zone_name=_UTC)
        case Once(moment):
            return ScheduleSpec(calendars=[_at(moment)], time_zone_name=_UTC)
        case _:
            doubtful = doubtful_hours(schedule, zone, now.astimezone(zone).date())
            moments = times_within(schedule, zone, doubtful)
            return ScheduleSpec(
                calendars=list(_calendars(schedule, doubtful)),
                intervals=[_single(moment) for moment in moments],
                time_zone_name=zone.key,
            )


def _single(moment: datetime) -> ScheduleIntervalSpec:
    """Write a moment as the interval from 1970 on that comes again only when it is twice as far away.

    It could not be the offset of a longer one: an offset that is still to come is passed over.
    """
    return ScheduleIntervalSpec(every=timedelta(seconds=int(moment.timestamp())))


def _at(moment: datetime) -> ScheduleCalendarSpec:
    day = _day_of(moment.date())
    return replace(day, hour=_ranges([moment.hour]), minute=_ranges([moment.minute]), second=_ranges([moment.second]))


def _calendars(cron: CronTimes, doubtful: Hours) -> Iterator[ScheduleCalendarSpec]:
    """Yield the calendars of a cron without the doubtful hours of the days that have any."""
    for days, weekdays in cron.choices:
        whole = ScheduleCalendarSpec(
            minute=_ranges(cron.minutes),
            hour=_ranges(cron.hours),
            day_of_month=_ranges(days),
            month=_ranges(cron.months),
            day_of_week=_ranges(weekdays),
        )
        if not doubtful:
            yield whole
            continue
        yield replace(whole, year=_ranges(set(_YEARS) - {day.year for day in doubtful}))
        yield from _rest_of_years(whole, cron.months, days, doubtful)
        for day, hours in doubtful.items():
            if cron.hours - hours and day.day in days and day.month in cron.months:
                one = _day_of(day)
                rest = _ranges(cron.hours - hours)
                yield replace(whole, year=one.year, month=one.month, day_of_month=one.day_of_month, hour=rest)


def _rest_of_years(
    whole: ScheduleCalendarSpec, months: Set[int], days: Set[int], doubtful: Iterable[date]
) -> Iterator[ScheduleCalendarSpec]:
    """Yield the other months of the years with doubtful days, and the other days of their months."""
    left_out = sorted(doubtful)
    for year, of_year in groupby(left_out, key=lambda day: day.year):
        changing = list(of_year)
        others = months - {day.month for day in changing}
        if others:
            yield replace(whole, year=_ranges([year]), month=_ranges(others))
        for month, of_month in groupby(changing, key=lambda day: day.month):
            quiet = days - {day.day for day in of_month}
            if quiet and month in months:
                yield replace(whole, year=_ranges([year]), month=_ranges([month]), day_of_month=_ranges(quiet))


def _day_of(day: date) -> ScheduleCalendarSpec:
    return ScheduleCalendarSpec(year=_ranges([day.year]), month=_ranges([day.month]), day_of_month=_ranges([day.day]))


def _ranges(numbers: Iterable[int]) -> Sequence[ScheduleRange]:
    """Write numbers as few ranges."""
    placed = enumerate(sorted(numbers))
    runs = ([number for _, number in run] for _, run in groupby(placed, key=lambda pair: pair[1] - pair[0]))
    return tuple(ScheduleRange(run[0], run[-1]) for run in runs)
