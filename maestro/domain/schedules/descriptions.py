"""Descriptions of schedules in plain English, such as "at 09:00 on working days"."""

from calendar import month_name
from collections.abc import Sequence
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
_WEEKS = {frozenset(range(7)): "", frozenset(range(1, 6)): "on working days", frozenset({0, 6}): "at weekends"}
_MOST_TIMES = 4
"""The most times of a day that are listed; for more times, the description gives a rhythm or a count."""


def describe_schedule(schedule: Schedule, zone: ZoneInfo) -> str:
    """Describe when a schedule runs, in the local time of its zone."""
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
    """Describe how far a moment is from now in the largest unit that fits, such as "in 3 hours" or "2 days ago"."""
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
    """Return the step between the numbers if they divide the whole evenly, else None."""
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
