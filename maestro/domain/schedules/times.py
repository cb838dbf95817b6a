"""The due times of a schedule in UTC, also around clock changes of its zone (docs/decisions.md: schedules; ADR 17)."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from heapq import merge
from itertools import groupby, islice
from zoneinfo import ZoneInfo

from maestro.domain.schedules.expressions import (
    LAST_YEAR,
    CronTimes,
    Interval,
    Once,
    Schedule,
    change_between,
    clocks_change,
    first_utc_moment,
    local_to_utc,
)

LOOK_AHEAD = 400
"""The days to search for clock changes: a year, and a margin so that the result is renewed before it is over."""

Hours = Mapping[date, Set[int]]
"""Hours of local time, by date."""

_DAY, _HOUR, _SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)
_ALL_DAY = frozenset(range(24))


def times_after(schedule: Schedule, zone: ZoneInfo, anchor: datetime, after: datetime) -> Iterator[datetime]:
    """Yield the due times strictly after ``after``, up to the year 2099.

    An interval counts from its anchor, in whole seconds. A cron follows the local time of its zone. If the cron names
    its hours (``fixed``), all times in a gap move to the first moment after the gap, and a time in a repeated hour
    occurs once. If the hour field has a ``*``, times in a gap are skipped, and a time in a repeated hour occurs twice.
    """
    match schedule:
        case Interval(length):
            return _interval_times(length, anchor, after)
        case Once(moment):
            return iter((moment,) if moment > after else ())
        case _:
            return (time for time, _ in groupby(_cron_times(schedule, zone, after)) if time > after)


def next_times(schedule: Schedule, zone: ZoneInfo, anchor: datetime, after: datetime) -> tuple[datetime, ...]:
    """Return the next five due times, or fewer if the schedule ends earlier."""
    return tuple(islice(times_after(schedule, zone, anchor, after), 5))


def count_times(schedule: Schedule, zone: ZoneInfo, anchor: datetime, after: datetime, until: datetime) -> int:
    """Return the number of due times strictly between two moments; long ranges are counted without listing times."""
    match schedule:
        case Interval(length):
            first = next(_interval_times(length, anchor, after), until)
            return -((first - until) // length) if first < until else 0
        case Once(moment):
            return int(after < moment < until)
        case _:
            return _count_cron_times(schedule, zone, after, until)


def times_on_day(cron: CronTimes, zone: ZoneInfo, day: date) -> Iterator[datetime]:
    """Yield the due times of one local day in order; a gap at the end of the day moves some to the next day."""
    if cron.fixed:
        times: Iterator[datetime] = (first_utc_moment(wall, zone) for wall in cron.times_on(day))
    else:
        times = merge(_times_with_fold(cron, zone, day, 0), _times_with_fold(cron, zone, day, 1))
    return (moment for moment, _ in groupby(times))


def next_skipped_time(cron: CronTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Return the next local time of a cron that a clock change skips, None if there is none in five years."""
    today = after.astimezone(zone).date()
    for day in (today + ahead * _DAY for ahead in range(5 * 366)):
        if clocks_change(day, zone):
            walls = (*cron.times_on(day), *cron.times_on(day + _DAY))
            skipped = next((wall for wall in walls if local_to_utc(wall, zone, 0) is None), None)
            if skipped is not None and first_utc_moment(skipped, zone) > after:
                return skipped
    return None


def _interval_times(length: timedelta, anchor: datetime, after: datetime) -> Iterator[datetime]:
    start = anchor.astimezone(UTC).replace(microsecond=0)
    time = start + ((after - start) // length + 1) * length
    while time.year <= LAST_YEAR:
        yield time
        time += length


def _cron_times(cron: CronTimes, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    day = after.astimezone(zone).date()
    # Hours of the first day that have passed are left out, to save the work of computing their minutes.
    ends = {hour: local_to_utc(datetime.combine(day, time(hour, 59)), zone, 1) for hour in cron.hours}
    hours = frozenset(hour for hour, end in ends.items() if end is None or end > after)
    yield from times_on_day(replace(cron, hours=hours), zone, day)
    while (day := day + _DAY).year <= LAST_YEAR:
        if cron.has_times_on(day):
            yield from times_on_day(cron, zone, day)


def _times_with_fold(cron: CronTimes, zone: ZoneInfo, day: date, fold: int) -> Iterator[datetime]:
    """Yield the moments of the day's local times in order; ``fold`` 1 selects the second pass of a repeated hour."""
    return filter(None, (local_to_utc(wall, zone, fold) for wall in cron.times_on(day)))


def _count_cron_times(cron: CronTimes, zone: ZoneInfo, after: datetime, until: datetime) -> int:
    """Count a cron's due times; only the first day, the last day and clock changes are computed exactly."""
    if after >= until:
        return 0
    first, last = after.astimezone(zone).date(), until.astimezone(zone).date()
    near, count, full = set[datetime](), 0, len(cron.hours) * len(cron.minutes)
    for day in (first + ahead * _DAY for ahead in range((last - first).days + 1)):
        if day in (first, last) or clocks_change(day - _DAY, zone) or clocks_change(day, zone):
            near.update(time for time in times_on_day(cron, zone, day) if after < time < until)
        elif cron.has_times_on(day):
            count += full
    return count + len(near)


def doubtful_hours(cron: CronTimes, zone: ZoneInfo, today: date) -> Hours:
    """Return the local hours around coming clock changes in which a cron has due times.

    Where a clock change skips midnight, a Temporal server may compute the wrong weekday. For a cron with days of the
    week, the whole day is then included.
    """
    return {
        day: hours
        for evening in _clock_change_days(zone, today)
        for day, hours in _hours_around_change(evening, zone, by_weekday=len(cron.weekdays) < 7).items()
        if hours == _ALL_DAY or (cron.has_times_on(day) and cron.hours & hours)
    }


def times_within(cron: CronTimes, zone: ZoneInfo, hours: Hours) -> tuple[datetime, ...]:
    """Return a cron's due times in the given hours, in UTC and in order."""
    all_day = (time for day in hours for time in times_on_day(cron, zone, day))
    local = ((time, time.astimezone(zone)) for time in all_day)
    # A gap at the end of a day moves a due time to the first moment of the next day, which ``hours`` may lack.
    return tuple(sorted({time for time, wall in local if wall.hour in hours.get(wall.date(), _ALL_DAY)}))


@lru_cache(maxsize=100)
def _clock_change_days(zone: ZoneInfo, today: date) -> tuple[date, ...]:
    """Return the days with a clock change between noon and the next noon; the search begins two days back."""
    days = (today + ahead * _DAY for ahead in range(-2, LOOK_AHEAD))
    return tuple(day for day in days if clocks_change(day, zone))


def _hours_around_change(evening: date, zone: ZoneInfo, *, by_weekday: bool) -> Hours:
    """Return the local hours from one hour before a clock change to the hour after it."""
    noon, next_noon = (datetime.combine(day, time(12), zone).astimezone(UTC) for day in (evening, evening + _DAY))
    moment = change_between(noon, next_noon, zone)
    before = _local_time(moment - _SECOND, zone) + _SECOND
    after = _local_time(moment, zone)
    first, last = min(before, after) - _HOUR, max(before, after)
    hours: dict[date, Set[int]] = {}
    while first.replace(minute=0, second=0) <= last:
        hours[first.date()] = hours.get(first.date(), frozenset()) | {first.hour}
        first += _HOUR
    if by_weekday and before <= datetime.combine(after.date(), time()) < after:
        hours[after.date()] = _ALL_DAY
    return hours


def _local_time(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)
