"""Reads from the words of the command ``claude`` until when a subscription is used up."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from maestro.llm.retry_after import LONGEST

UNTOLD = timedelta(hours=1)
"""How long a subscription is left alone that does not say until when."""

_LIMIT = re.compile(
    r"\b(?:hit your\b[^.\n|]*\blimit|(?:usage|session|weekly|5-hour|Opus|Sonnet) limit reached)", re.IGNORECASE
)
_EPOCH = re.compile(r"limit reached\|(\d{10,13})\b", re.IGNORECASE)
_RESETS = re.compile(
    r"\bresets?(?: at)? "
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (?P<day>\d{1,2})(?:,| at)* )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>am|pm)?\b(?: \((?P<zone>[\w+/-]+)\))?",
    re.IGNORECASE,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONG_AGO = timedelta(days=180)


def limit_of(said: str, now: datetime) -> timedelta | None:
    """Return how long to leave the subscription alone, None when this is no message about a limit.

    A time of day is the next one in the zone that is named, else in that of this machine.
    """
    if not _LIMIT.search(said):
        return None
    until = _moment(said, now)
    return min(max(until - now, timedelta()), LONGEST) if until else UNTOLD


def _moment(said: str, now: datetime) -> datetime | None:
    """Return when the limit ends, None when nothing readable says."""
    try:
        if epoch := _EPOCH.search(said):
            number = int(epoch[1])
            return datetime.fromtimestamp(number / 1000 if number > 10**11 else number, UTC)
        found = _RESETS.search(said)
        return _next(found, now) if found else None
    except (ValueError, KeyError, OverflowError, OSError):  # no such date, hour or zone: it said nothing we can read
        return None


def _next(found: "re.Match[str]", now: datetime) -> datetime:
    """Return the moment that a date or an hour of the day means; raises ``ValueError`` for what is neither."""
    zone = ZoneInfo(found["zone"]) if found["zone"] else None
    here = now.astimezone(zone)
    hour, minute = _hour(int(found["hour"]), found["half"]), int(found["minute"] or 0)
    if found["month"]:
        month, day = _MONTHS.index(found["month"].lower()) + 1, int(found["day"])
        moment = _utc(datetime(here.year, month, day, hour, minute), zone)
        return moment if now - moment < _LONG_AGO else _utc(datetime(here.year + 1, month, day, hour, minute), zone)
    today = datetime(here.year, here.month, here.day, hour, minute)
    moment = _utc(today, zone)
    # A day later by the calendar, which is 23 or 25 hours where the clocks change.
    return moment if moment > now else _utc(today + timedelta(days=1), zone)


def _hour(hour: int, half: str | None) -> int:
    if half is None:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(f"{hour} {half} is no hour")
    return hour % 12 + (12 if half.lower() == "pm" else 0)


def _utc(local: datetime, zone: tzinfo | None) -> datetime:
    """Return a local time as a moment; without a zone it is this machine's."""
    return local.replace(tzinfo=zone).astimezone(UTC)
