"""Descriptions of schedules in plain English, such as "at 09:00 on working days"."""

from collections.abc import Sequence, Set
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from maestro.domain.schedules.cron import CronTimes
from maestro.domain.schedules.expressions import Interval, Once, Schedule

_UNITS = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
)
_WEEKDAYS = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WORKING_DAYS = frozenset(range(1, 6))
_WEEKEND = frozenset({0, 6})
_HOURS, _MINUTES = 24, 60
_ALL_DAYS = 31
_MOST_TIMES = 4
"""Up to this many times of a day are listed; above it, the description gives a rhythm or a count."""


def in_words(schedule: Schedule, zone: ZoneInfo) -> str:
    """Describe when a schedule runs, in the local time of its zone."""
    match schedule:
        case Interval(length):
            return _every(length)
        case Once(moment):
            return f"once, on {_day(moment, zone)}"
        case _:
            parts = (_times(schedule), _days(schedule), _months(schedule.months))
            return " ".join(filter(None, parts))


def distance(moment: datetime, now: datetime) -> str:
    """Describe how far a moment is from now in the largest unit that fits, such as "in 3 hours" or "2 days ago"."""
    away = moment - now
    name, unit = next(((name, unit) for name, unit in _UNITS if abs(away) >= unit), ("", None))
    if unit is None:
        return "now"
    count = abs(away) // unit
    words = f"{count} {name}" if count == 1 else f"{count} {name}s"
    return f"in {words}" if away > timedelta() else f"{words} ago"


def _every(length: timedelta) -> str:
    name, unit = next((name, unit) for name, unit in _UNITS if not length % unit)
    count = length // unit
    return f"every {name}" if count == 1 else f"every {count} {name}s"


def _day(moment: datetime, zone: ZoneInfo) -> str:
    wall = moment.astimezone(zone)
    return f"{wall.day} {_MONTHS[wall.month - 1]} {wall.year} at {wall:%H:%M:%S}".removesuffix(":00")


def _times(cron: CronTimes) -> str:
    hours, minutes = sorted(cron.hours), sorted(cron.minutes)
    if len(hours) * len(minutes) <= _MOST_TIMES:
        return f"at {_listed([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    step = _rhythm(minutes, _MINUTES)
    if len(minutes) == 1 and (span := _rhythm(hours, _HOURS)):
        return _every(timedelta(hours=span)) + (f" at minute {minutes[0]}" if minutes[0] else "")
    if step and len(hours) == _HOURS:
        return _every(timedelta(minutes=step))
    if step and hours == list(range(hours[0], hours[-1] + 1)):
        return f"{_every(timedelta(minutes=step))} from {hours[0]:02}:00 to {hours[-1]:02}:59"
    return f"{len(hours) * len(minutes)} times a day"


def _rhythm(numbers: Sequence[int], whole: int) -> int | None:
    """Return the step between the numbers if they divide the whole evenly, else None."""
    step = whole // len(numbers)
    return step if len(numbers) > 1 and list(numbers) == list(range(0, whole, step)) else None


def _days(cron: CronTimes) -> str:
    by_week = _weekdays(cron.weekdays) if len(cron.weekdays) < len(_WEEKDAYS) else ""
    some = len(cron.days) < _ALL_DAYS
    by_month = f"on day {_listed(list(map(str, sorted(cron.days))))} of the month" if some else ""
    if by_week or by_month:
        return " or ".join(filter(None, (by_month, by_week)))
    return "every day" if len(cron.hours) * len(cron.minutes) <= _MOST_TIMES else ""


def _weekdays(days: Set[int]) -> str:
    if days == _WORKING_DAYS:
        return "on working days"
    if days == _WEEKEND:
        return "at weekends"
    return f"on {_listed([_WEEKDAYS[day] for day in sorted(days, key=lambda day: (day - 1) % len(_WEEKDAYS))])}"


def _months(months: Set[int]) -> str:
    some = len(months) < len(_MONTHS)
    return f"in {_listed([_MONTHS[month - 1] for month in sorted(months)])}" if some else ""


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
