"""Intervals: ``every 15m`` (docs/decisions.md: schedules)."""

import re
from dataclasses import dataclass
from datetime import timedelta

from maestro.domain.errors import InvalidEdit

SHORTEST = timedelta(seconds=30)
LONGEST = timedelta(days=366)

UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
}
"""How people write a length of time."""

_EVERY = re.compile(r"every\s+([0-9]{1,9})\s*([a-z]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Interval:
    """Every so often, counted from when it was written."""

    length: timedelta


def is_interval(written: str) -> bool:
    """Say whether this is meant as an interval."""
    return written.strip().lower().startswith("every")


def read_interval(written: str, shortest: timedelta) -> Interval:
    """Read an interval; raises ``InvalidEdit`` for what is none, and for one that is too short or too long."""
    found = _EVERY.fullmatch(written.strip())
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise InvalidEdit("after every, write a number and s, m, h or d, such as every 15m")
    length = unit * min(int(found[1]), LONGEST // unit + 1)
    if not shortest <= length <= LONGEST:
        raise InvalidEdit(
            f"an interval has at least {shortest.total_seconds():.0f} seconds and at most {LONGEST.days} days, such "
            "as every 15m"
        )
    return Interval(length)
