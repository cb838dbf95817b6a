"""How schedules are written: an interval, five-field cron in a time zone, or a single moment; all else is refused.

See docs/decisions.md: schedules; ADR 17.
"""

import difflib
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.cron_times import CronTimes, read_cron
from maestro.domain.schedules.intervals import SHORTEST, Interval, is_interval, read_interval
from maestro.domain.schedules.once import Once, is_once, read_once, refuse_past

__all__ = [
    "LONGEST_JITTER",
    "SCHEDULE_GRAMMAR",
    "SHORTEST",
    "Interval",
    "Once",
    "Schedule",
    "check_jitter",
    "read_schedule",
    "read_zone",
    "recall_schedule",
]

SCHEDULE_GRAMMAR = (
    "every N s|m|h|d (at least 30 s), such as every 15m; or five-field cron, such as 0 9 * * 1-5 for 9 o'clock on "
    "working days; or once, as at 2026-12-01 09:00 or in 20m. Cron and at are meant in the time zone of the field "
    "timezone (an IANA name such as Europe/Amsterdam; UTC without it)"
)
"""The grammar in a sentence or two, as people and models are told."""

LONGEST_JITTER = 3600
"""Seconds."""

_SMALLEST = timedelta(seconds=1)
"""The finest that Temporal can do."""

Schedule = Interval | CronTimes | Once


def read_schedule(written: str, zone: str, now: datetime, shortest: timedelta = SHORTEST) -> Schedule:
    """Read a schedule that is written now, and meant in a time zone.

    Raises ``InvalidEdit``, in a sentence that names the fix: for what is no schedule, for an interval that is too
    short, for an unknown zone, for a day that never comes, and for a moment that is over.
    """
    place = read_zone(zone)
    schedule = _read(written, place, now, shortest)
    if isinstance(schedule, Once):
        refuse_past(schedule, now)
    return schedule


def recall_schedule(written: str, zone: str, anchor: datetime) -> Schedule:
    """Read a schedule that was accepted when it was written, at the anchor, maybe under other limits than today's.

    Raises ``InvalidEdit`` for what is no schedule at all.
    """
    return _read(written, read_zone(zone), anchor, _SMALLEST)


def check_jitter(schedule: Schedule, seconds: int) -> None:
    """Raise ``InvalidEdit`` for a jitter that is too long, or that could bring two times of an interval together."""
    if not 0 <= seconds <= LONGEST_JITTER:
        raise InvalidEdit(f"the jitter must be from 0 to {LONGEST_JITTER} seconds")
    if isinstance(schedule, Interval) and 2 * seconds >= schedule.length.total_seconds() and seconds:
        raise InvalidEdit(
            "the jitter must be less than half of the interval, here less than "
            f"{schedule.length.total_seconds() / 2:g} seconds"
        )


def read_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name; raises ``InvalidEdit`` for one that does not exist."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        zones = {zone.lower(): zone for zone in available_timezones()}
    nearest = difflib.get_close_matches(name.lower().replace(" ", "_"), zones, n=1)
    hint = f"; did you mean {zones[nearest[0]]}?" if nearest else ", such as Europe/Amsterdam or UTC"
    raise InvalidEdit(f"there is no such time zone; write its IANA name{hint}")


def _read(written: str, zone: ZoneInfo, anchor: datetime, shortest: timedelta) -> Schedule:
    if is_interval(written):
        return read_interval(written, shortest)
    return read_once(written, zone, anchor) if is_once(written) else read_cron(written)
