"""A parser for cron expressions of five fields: minute, hour, day of the month, month, day of the week.

The library cronsim is no substitute: it repeats named hours when the clocks go back if the minutes have a ``*``, and
its errors do not say how to correct the text (docs/decisions.md: schedules).
"""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time

from maestro.domain.errors import InvalidEdit

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
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
"""The number that means Sunday in cron, besides 0."""


@dataclass(frozen=True)
class _Field:
    """One of the five fields of a cron expression: its name, its range of numbers, and the names of those numbers."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()

    def read(self, written: str) -> frozenset[int]:
        """Return the numbers that a comma-separated list of ranges selects; raises ``InvalidEdit``."""
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


_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY = _Field("day of the month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_WEEKDAY = _Field("day of the week", 0, 7, _WEEKDAYS)


@dataclass(frozen=True)
class CronTimes:
    """The times that a cron expression selects; Sunday is 0.

    ``fixed`` is true when the hour field names hours and has no ``*``: this decides what happens when the clocks
    change. If days of the month and days of the week are both restricted, a day that matches either one counts, as in
    every cron.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    fixed: bool

    def times_on(self, day: date) -> Iterator[datetime]:
        """Yield the times on one day as local times, in ascending order."""
        if self.has_times_on(day):
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    yield datetime.combine(day, time(hour, minute))

    def has_times_on(self, day: date) -> bool:
        """Say whether the cron has a time on this day."""
        weekday = day.isoweekday() % _SUNDAY
        return day.month in self.months and any(day.day in days and weekday in week for days, week in self.choices)

    @property
    def choices(self) -> tuple[tuple[frozenset[int], frozenset[int]], ...]:
        """The pairs of days of the month and days of the week; a day matches if one pair contains both its parts."""
        if len(self.days) < _DAY.last and len(self.weekdays) < _SUNDAY:
            return (self.days, frozenset(range(_SUNDAY))), (frozenset(range(1, 32)), self.weekdays)
        return ((self.days, self.weekdays),)


def read_cron(written: str) -> CronTimes:
    """Parse a cron expression; raises ``InvalidEdit`` that names the invalid field, or says that no date matches."""
    words = written.split()
    if len(words) == 1 and words[0].lower() in _NICKNAMES:
        raise InvalidEdit(f"write {_NICKNAMES[words[0].lower()]} instead of {words[0].lower()}")
    if len(words) != 5:
        seconds = ", and no seconds" if len(words) == 6 else ""
        raise InvalidEdit(
            "write it as every 15m, with s, m, h or d, or as the five fields of cron: minute, hour, day of the month, "
            f"month, day of the week{seconds}, such as 0 9 * * 1-5"
        )
    minute, hour, day, month, weekday = words
    times = CronTimes(
        _MINUTE.read(minute),
        _HOUR.read(hour),
        _DAY.read(day),
        _MONTH.read(month),
        frozenset(number % _SUNDAY for number in _WEEKDAY.read(weekday)),
        fixed="*" not in hour,
    )
    longest_month = max(monthrange(2000, month)[1] for month in times.months)
    if len(times.weekdays) == _SUNDAY and min(times.days) > longest_month:
        raise InvalidEdit("no date matches: every listed month is shorter; choose an earlier day or a longer month")
    return times


def _is_number(written: str) -> bool:
    return written.isascii() and written.isdigit() and len(written) <= 2
