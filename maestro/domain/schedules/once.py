"""What is to run once: ``at 2026-12-01 09:00`` in a time zone, or ``in 20m`` (docs/decisions.md: schedules; ADR 17)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.intervals import LONGEST, UNITS
from maestro.domain.schedules.walls import moments

FIRST_YEAR = 1970
"""What is earlier no zone may know a moment for."""

LAST_YEAR = 2099
"""Later than this Temporal knows no calendar."""

_AT = re.compile(r"at\s+([0-9]{4}-[0-9]{2}-[0-9]{2})[T\s]\s*([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)", re.IGNORECASE)
_IN = re.compile(r"in\s+([0-9]{1,9})\s*([a-z]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Once:
    """A single moment, in UTC and whole seconds."""

    moment: datetime


def is_once(written: str) -> bool:
    """Say whether this is meant as a single moment."""
    return written.strip().lower().startswith(("at ", "in ")) or written.strip().lower() in ("at", "in")


def read_once(written: str, zone: ZoneInfo, anchor: datetime) -> Once:
    """Read a single moment; ``in`` counts from the anchor, which is when it was written.

    Of an hour that comes twice, the first is meant. Raises ``InvalidEdit`` for what is no moment, for one more than a
    year ahead by its count, and for one that the clocks of the zone pass over.
    """
    if written.strip().lower().startswith("in"):
        return _ahead(written, anchor)
    found = _AT.fullmatch(written.strip())
    if found is None:
        raise InvalidEdit("after at, write a date and a time, such as at 2026-12-01 09:00")
    try:
        wall = datetime.fromisoformat(f"{found[1]}T{found[2]}")
    except ValueError as error:
        raise InvalidEdit("there is no such date or time; write it as at 2026-12-01 09:00") from error
    if not FIRST_YEAR <= wall.year <= LAST_YEAR:
        raise InvalidEdit(f"choose a year from {FIRST_YEAR} to {LAST_YEAR}")
    shown = moments(wall, zone)
    if not shown:
        raise InvalidEdit(
            f"on {wall:%Y-%m-%d} the clocks of {zone.key} go forward over {wall:%H:%M}; choose another hour, or the "
            "time zone UTC"
        )
    return Once(shown[0])


def refuse_past(once: Once, now: datetime) -> None:
    """Raise ``InvalidEdit`` for a moment that is over."""
    if once.moment <= now:
        raise InvalidEdit(
            f"that moment is over: it was {once.moment:%Y-%m-%d %H:%M:%S} UTC, and now it is "
            f"{now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC; choose a later one"
        )


def _ahead(written: str, anchor: datetime) -> Once:
    found = _IN.fullmatch(written.strip())
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise InvalidEdit("after in, write a number and s, m, h or d, such as in 20m")
    ahead = unit * min(int(found[1]), LONGEST // unit + 1)
    if not ahead or ahead > LONGEST:
        raise InvalidEdit(f"choose at least 1 second and at most {LONGEST.days} days, such as in 20m")
    return Once((anchor + ahead).astimezone(UTC).replace(microsecond=0))
