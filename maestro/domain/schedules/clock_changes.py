"""The nights on which clocks change: around them Temporal is told the times of a cron one by one (ADR 17).

Measured with its server 1.32: where the clocks of Europe/Amsterdam go back over 2 to 3 o'clock, a cron for 01:30 comes
at 01:30 and once more at 02:30, and one for every half hour leaves out an hour.
"""

from collections.abc import Mapping, Set
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from maestro.domain.schedules.cron_times import CronTimes
from maestro.domain.schedules.times import times_of
from maestro.domain.schedules.walls import change_between, clocks_change

LOOK_AHEAD = 400
"""Days: every change of the coming year, told again before it is over."""

Hours = Mapping[date, Set[int]]
"""Hours of some days, by the clock on the wall."""

_DAY, _HOUR, _SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)
_ALL_DAY = frozenset(range(24))
_EVERY_WEEKDAY = 7


def doubtful_hours(cron: CronTimes, zone: ZoneInfo, today: date) -> Hours:
    """Return the hours around the coming changes of the clocks in which the cron has something to do.

    Where midnight itself is passed over, a server may take the day for the one before: then the whole day is doubtful
    to a cron that asks for the day of the week.
    """
    found: dict[date, Set[int]] = {}
    for evening in _evenings(zone, today):
        by_weekday = len(cron.weekdays) < _EVERY_WEEKDAY
        for day, hours in _around(evening, zone, by_weekday=by_weekday).items():
            if hours == _ALL_DAY or (cron.comes_on(day) and cron.hours & hours):
                found[day] = hours
    return found


def times_within(cron: CronTimes, zone: ZoneInfo, hours: Hours) -> tuple[datetime, ...]:
    """Return the times of the cron within these hours, in UTC and in their order."""
    all_day = (time for day in hours for time in times_of(cron, zone, day))
    local = ((time, time.astimezone(zone)) for time in all_day)
    # A gap that ends its day brings a time to the first moment of the next one.
    return tuple(sorted({time for time, wall in local if wall.hour in hours.get(wall.date(), _ALL_DAY)}))


@lru_cache(maxsize=100)
def _evenings(zone: ZoneInfo, today: date) -> tuple[date, ...]:
    """Return the days between whose noon and the next the clocks change; yesterday's change may still go on."""
    days = (today + ahead * _DAY for ahead in range(-2, LOOK_AHEAD))
    return tuple(day for day in days if clocks_change(day, zone))


def _around(evening: date, zone: ZoneInfo, *, by_weekday: bool) -> Hours:
    """Return the hours from the one before the change to the one after it."""
    moment = _change(evening, zone)
    before = _wall(moment - _SECOND, zone) + _SECOND
    after = _wall(moment, zone)
    first, last = min(before, after) - _HOUR, max(before, after)
    found: dict[date, set[int]] = {}
    while first.replace(minute=0, second=0) <= last:
        found.setdefault(first.date(), set()).add(first.hour)
        first += _HOUR
    midnight = datetime.combine(after.date(), time())
    if by_weekday and before <= midnight < after:
        return {**found, after.date(): _ALL_DAY}
    return found


def _change(evening: date, zone: ZoneInfo) -> datetime:
    """Return the first second that has the offset of the next noon."""
    earlier = datetime.combine(evening, time(12), zone).astimezone(UTC)
    later = datetime.combine(evening + _DAY, time(12), zone).astimezone(UTC)
    return change_between(earlier, later, zone)


def _wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)
