"""Parsers for schedule expressions: an interval, five-field cron in a time zone, or a single moment.

See docs/decisions.md: schedules; ADR 17. The library cronsim cannot replace the cron parser: it repeats
named hours when the clocks go back if the minutes have a ``*``, and its errors do not say how to correct the text."""

import difflib
import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

from maestro.domain.errors import InvalidEdit

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SUNDAY = 7
"""The second number that means Sunday in cron; the first is 0."""

SHORTEST = timedelta(seconds=30)
LONGEST = timedelta(days=366)

LONGEST_JITTER = 3600
"""The longest jitter, in seconds."""

FIRST_YEAR = 1970
"""The first year accepted; time zone data does not reliably cover earlier years."""

LAST_YEAR = 2099
"""The last year accepted, because the calendar specs of Temporal end with it."""

SCHEDULE_GRAMMAR = (
    "every N s|m|h|d (at least 30 s), such as every 15m; or five-field cron, such as 0 9 * * 1-5 for 9 o'clock on "
    "working days; or once, such as at 2026-12-01 09:00 or in 20m. Cron and at are read in the time zone of the field "
    "timezone (an IANA name such as Europe/Amsterdam; UTC without it)"
)
"""The grammar of schedule expressions, as shown to users and models."""

_SECOND = timedelta(seconds=1)
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), _SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
}


_AT = re.compile(r"at\s+([0-9]{4}-[0-9]{2}-[0-9]{2})[T\s]\s*([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)", re.IGNORECASE)


@dataclass(frozen=True)
class _Field:
    """One of the five fields of a cron expression: its name, its range of numbers, and the names of those numbers."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()

    def parse_field(self, written: str) -> frozenset[int]:
        """Return the numbers that a comma-separated list of ranges selects; raises ``InvalidEdit`` if it is invalid."""
        return frozenset(number for part in written.split(",") for number in self._read_range(part))

    def _read_range(self, part: str) -> range:
        whole, slash, step = part.partition("/")
        if slash and not (_is_number(step) and 0 < int(step) <= self.last):
            raise InvalidEdit(f"the step of the {self.name} must be a number from 1 to {self.last}, as in */5")
        every = int(step) if slash else 1
        if whole == "*":
            return range(self.first, self.last + 1, every)
        start, dash, end = whole.partition("-")
        first = self._read_number(start)
        last = self._read_number(end) if dash else (self.last if slash else first)
        if last < first:
            raise InvalidEdit(f"a range of the {self.name} runs backwards; write two ranges, such as 22-23,0-6")
        return range(first, last + 1, every)

    def _read_number(self, written: str) -> int:
        name = written.lower()
        known = self.first + self.names.index(name) if name in self.names else None
        number = int(written) if known is None and _is_number(written) else known
        if number is None or not self.first <= number <= self.last:
            names = f" or a name such as {self.names[1]}" if self.names else ""
            raise InvalidEdit(f"the {self.name} must be a number from {self.first} to {self.last}{names}, or *")
        return number


_DAY = _Field("day of the month", 1, 31)
_MONTH = _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
_WEEKDAY = _Field("day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))


@dataclass(frozen=True)
class CronTimes:
    """The times that a cron expression selects; Sunday is 0.

    ``fixed`` means that the hour field names hours and has no ``*``, which decides what happens when the clocks change.
    If both the days of the month and the days of the week are restricted, a day has to match only one of them, as in
    every cron.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    fixed: bool

    def times_on(self, day: date) -> Iterator[datetime]:
        """Yield the cron's times on one day as local times, in ascending order."""
        if self.has_times_on(day):
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    yield datetime.combine(day, time(hour, minute))

    def has_times_on(self, day: date) -> bool:
        """Return whether the cron has a time on this day."""
        weekday = day.isoweekday() % _SUNDAY
        return day.month in self.months and any(day.day in days and weekday in week for days, week in self.choices)

    @property
    def choices(self) -> tuple[tuple[frozenset[int], frozenset[int]], ...]:
        """The pairs of days of the month and days of the week; a day has to match both parts of one pair."""
        if len(self.days) < _DAY.last and len(self.weekdays) < _SUNDAY:
            return (self.days, frozenset(range(_SUNDAY))), (frozenset(range(1, 32)), self.weekdays)
        return ((self.days, self.weekdays),)


def read_cron(written: str) -> CronTimes:
    """Parse a cron expression; raises ``InvalidEdit`` that names the invalid field or says that no date matches."""
    words = written.split()
    if len(words) == 1 and words[0].lower() in _NICKNAMES:
        raise InvalidEdit(f"write {_NICKNAMES[words[0].lower()]} instead of {words[0].lower()}")
    if len(words) != 5:
        seconds = ", and no seconds" if len(words) == 6 else ""
        raise InvalidEdit(
            "write it as every 15m (units s, m, h, d) or as the five fields of cron: minute, hour, day of the month, "
            f"month, day of the week{seconds}, such as 0 9 * * 1-5"
        )
    minute, hour, day, month, weekday = words
    times = CronTimes(
        _Field("minute", 0, 59).parse_field(minute),
        _Field("hour", 0, 23).parse_field(hour),
        _DAY.parse_field(day),
        _MONTH.parse_field(month),
        frozenset(number % _SUNDAY for number in _WEEKDAY.parse_field(weekday)),
        fixed="*" not in hour,
    )
    longest_month = max(monthrange(2000, month)[1] for month in times.months)
    if len(times.weekdays) == _SUNDAY and min(times.days) > longest_month:
        raise InvalidEdit("no date matches: every listed month is shorter; choose an earlier day or a longer month")
    return times


def _is_number(written: str) -> bool:
    return written.isascii() and written.isdigit() and len(written) <= 2


@dataclass(frozen=True)
class Interval:
    """A schedule that repeats after a fixed length of time, counted from the time when the expression was written."""

    length: timedelta


@dataclass(frozen=True)
class Once:
    """A schedule with a single run, at ``moment`` in UTC and whole seconds."""

    moment: datetime


Schedule = Interval | CronTimes | Once


def read_schedule(written: str, zone: str, now: datetime, shortest: timedelta = SHORTEST) -> Schedule:
    """Parse an expression written at the time ``now``; raises ``InvalidEdit`` with the fix, also for a past time."""
    schedule = _parse_expression(written, read_zone(zone), now, shortest)
    if isinstance(schedule, Once) and schedule.moment <= now:
        raise InvalidEdit(
            f"that moment is over: it was {schedule.moment:%Y-%m-%d %H:%M:%S} UTC, and now it is "
            f"{now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC; choose a later one"
        )
    return schedule


def read_stored_schedule(written: str, zone: str, anchor: datetime) -> Schedule:
    """Parse a stored schedule expression; ``anchor`` is the time at which the expression was written.

    The expression passed the checks of that time, so times in the past are allowed. So are intervals below today's
    shortest one, down to Temporal's limit of one second. Raises ``InvalidEdit`` if the expression cannot be parsed.
    """
    return _parse_expression(written, read_zone(zone), anchor, _SECOND)


def check_jitter(schedule: Schedule, seconds: int) -> None:
    """Raise ``InvalidEdit`` for a jitter above one hour, or of half the interval or more, so that no two runs meet."""
    if not 0 <= seconds <= LONGEST_JITTER:
        raise InvalidEdit(f"the jitter must be from 0 to {LONGEST_JITTER} seconds")
    if isinstance(schedule, Interval) and 2 * seconds >= schedule.length.total_seconds() and seconds:
        raise InvalidEdit(
            "the jitter must be less than half of the interval, here less than "
            f"{schedule.length.total_seconds() / 2:g} seconds"
        )


def read_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name; raises ``InvalidEdit`` with the nearest known name for an unknown one."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        zones = {zone.lower(): zone for zone in available_timezones()}
    nearest = difflib.get_close_matches(name.lower().replace(" ", "_"), zones, n=1)
    hint = f"; did you mean {zones[nearest[0]]}?" if nearest else ", such as Europe/Amsterdam or UTC"
    raise InvalidEdit(f"this time zone is unknown; write its IANA name{hint}")


def _parse_expression(written: str, zone: ZoneInfo, anchor: datetime, shortest: timedelta) -> Schedule:
    """Parse an expression; ``in 20m`` counts from the anchor, the time at which the expression was written."""
    text = written.strip()
    if text.lower().startswith("every"):
        length = _read_length(text, "every 15m")
        if not shortest <= length <= LONGEST:
            raise InvalidEdit(
                f"an interval has at least {shortest.total_seconds():.0f} seconds and at most {LONGEST.days} days, "
                "such as every 15m"
            )
        return Interval(length)
    match text.lower().split(" ")[0]:
        case "in":
            ahead = _read_length(text, "in 20m")
            if not ahead or ahead > LONGEST:
                raise InvalidEdit(f"choose at least 1 second and at most {LONGEST.days} days, such as in 20m")
            return Once((anchor + ahead).astimezone(UTC).replace(microsecond=0))
        case "at":
            return _read_moment(text, zone)
        case _:
            return read_cron(text)


def _read_length(text: str, example: str) -> timedelta:
    """Parse the length of time after ``every`` or ``in``; a length above ``LONGEST`` becomes a value just above it."""
    found = re.fullmatch(r"(?:every|in)\s+([0-9]{1,9})\s*([a-z]+)", text, re.IGNORECASE)
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise InvalidEdit(f"write a number and s, m, h or d after {example.split()[0]}, such as {example}")
    return unit * min(int(found[1]), LONGEST // unit + 1)


def _read_moment(text: str, zone: ZoneInfo) -> Once:
    """Parse an ``at`` time (in a repeated hour, the first pass); raises ``InvalidEdit``, also if the clocks skip it."""
    found = _AT.fullmatch(text)
    if found is None:
        raise InvalidEdit("write a date and a time after the word at, such as at 2026-12-01 09:00")
    try:
        wall = datetime.fromisoformat(f"{found[1]}T{found[2]}")
    except ValueError as error:
        raise InvalidEdit("this date or time does not exist; correct it, such as: at 2026-12-01 09:00") from error
    if not FIRST_YEAR <= wall.year <= LAST_YEAR:
        raise InvalidEdit(f"choose a year from {FIRST_YEAR} to {LAST_YEAR}")
    moment = local_to_utc(wall, zone, 0)
    if moment is None:
        raise InvalidEdit(
            f"on {wall:%Y-%m-%d} the clocks of {zone.key} go forward over {wall:%H:%M}; choose another hour, or the "
            "time zone UTC"
        )
    return Once(moment)


def local_to_utc(wall: datetime, zone: ZoneInfo, fold: int) -> datetime | None:
    """Return a local time in UTC, None if the clocks skip it; in a repeated hour, ``fold`` 1 means the second pass."""
    moment = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    return moment if moment.astimezone(zone).replace(tzinfo=None) == wall else None


def first_utc_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first moment of a local time in UTC; for a time the clocks skip, the first moment after the gap."""
    # For a time in a gap, fold 1 gives a moment before the gap, and fold 0 a moment after it.
    earlier, later = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    return local_to_utc(wall, zone, 0) or change_between(earlier, later, zone)


def change_between(earlier: datetime, later: datetime, zone: ZoneInfo) -> datetime:
    """Return the first second with the UTC offset of ``later``; the clocks must change once in between."""
    new = later.astimezone(zone).utcoffset()
    while later - earlier > _SECOND:
        middle = (earlier + (later - earlier) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == new:
            later = middle
        else:
            earlier = middle
    return later


def clocks_change(day: date, zone: ZoneInfo) -> bool:
    """Return whether a zone's clocks change between noon of this day and the next noon; clocks change at night."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=zone)
    return noon.utcoffset() != (noon + timedelta(days=1)).utcoffset()
