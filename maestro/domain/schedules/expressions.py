"""Parsers for schedule expressions: an interval, five-field cron in a time zone, or a single moment.

See docs/decisions.md: schedules; ADR 17.
"""

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.cron import CronTimes, read_cron

SHORTEST = timedelta(seconds=30)
LONGEST = timedelta(days=366)

UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
}
"""The accepted units of a length of time."""

_EVERY = re.compile(r"every\s+([0-9]{1,9})\s*([a-z]+)", re.IGNORECASE)

_SECOND = timedelta(seconds=1)

FIRST_YEAR = 1970
"""The first year accepted; time zone data does not reliably cover earlier years."""

LAST_YEAR = 2099
"""The last year accepted; calendar specs of Temporal end here."""

_AT = re.compile(r"at\s+([0-9]{4}-[0-9]{2}-[0-9]{2})[T\s]\s*([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)", re.IGNORECASE)
_IN = re.compile(r"in\s+([0-9]{1,9})\s*([a-z]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Interval:
    """A schedule that repeats after a fixed length of time, counted from when it was written."""

    length: timedelta


def is_interval(written: str) -> bool:
    """Say whether an expression begins like an interval ("every")."""
    return written.strip().lower().startswith("every")


def read_interval(written: str, shortest: timedelta) -> Interval:
    """Parse an interval; raises ``InvalidEdit`` if the syntax is invalid or the length is out of range."""
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


def moments(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return the moments, in UTC, at which local time equals ``wall``: none, one or two, depending on clock changes."""
    both = (moment_of(wall, zone, fold) for fold in (0, 1))
    return tuple(dict.fromkeys(filter(None, both)))


def moment_of(wall: datetime, zone: ZoneInfo, fold: int) -> datetime | None:
    """Return the moment, in UTC, of a local time, or None in a gap; for a repeated hour, fold 1 selects the second."""
    moment = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    return moment if moment.astimezone(zone).replace(tzinfo=None) == wall else None


def first_moment_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first moment of a local time; in a gap, the first moment after it."""
    # In a gap, fold 1 applies the offset after the gap and gives a moment before it; fold 0 gives one after it.
    earlier, later = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    return moment_of(wall, zone, 0) or change_between(earlier, later, zone)


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


def offset_at_noon(day: date, zone: ZoneInfo) -> timedelta | None:
    """Return the zone's UTC offset at noon of a day; clock changes happen at night."""
    return datetime(day.year, day.month, day.day, 12, tzinfo=zone).utcoffset()


def clocks_change(day: date, zone: ZoneInfo) -> bool:
    """Say whether the zone's clocks change between noon of this day and noon of the next."""
    return offset_at_noon(day, zone) != offset_at_noon(day + timedelta(days=1), zone)


@dataclass(frozen=True)
class Once:
    """A schedule with a single moment, in UTC and whole seconds."""

    moment: datetime


def is_once(written: str) -> bool:
    """Say whether an expression begins like a single moment ("at" or "in")."""
    return written.strip().lower().startswith(("at ", "in ")) or written.strip().lower() in ("at", "in")


def read_once(written: str, zone: ZoneInfo, anchor: datetime) -> Once:
    """Parse a single moment; ``in`` counts from the anchor, the moment at which the expression was written.

    In an hour that the clocks repeat, the first occurrence counts. Raises ``InvalidEdit`` for invalid syntax, for
    ``in`` with more than 366 days, for a year outside 1970 to 2099, and for a local time that the clocks skip.
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
    occurrences = moments(wall, zone)
    if not occurrences:
        raise InvalidEdit(
            f"on {wall:%Y-%m-%d} the clocks of {zone.key} go forward over {wall:%H:%M}; choose another hour, or the "
            "time zone UTC"
        )
    return Once(occurrences[0])


def refuse_past(once: Once, now: datetime) -> None:
    """Raise ``InvalidEdit`` if the moment has passed."""
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
"""The grammar of schedule expressions, as shown to users and models."""

LONGEST_JITTER = 3600
"""The longest jitter, in seconds."""

_SMALLEST = timedelta(seconds=1)
"""The shortest interval that Temporal supports."""

Schedule = Interval | CronTimes | Once


def read_schedule(written: str, zone: str, now: datetime, shortest: timedelta = SHORTEST) -> Schedule:
    """Parse a schedule expression that is written now, in a time zone.

    Raises ``InvalidEdit`` with a message that names the fix: for invalid syntax, an interval shorter than ``shortest``,
    an unknown zone, a date that never occurs, and a moment in the past.
    """
    time_zone = read_zone(zone)
    schedule = _read(written, time_zone, now, shortest)
    if isinstance(schedule, Once):
        refuse_past(schedule, now)
    return schedule


def recall_schedule(written: str, zone: str, anchor: datetime) -> Schedule:
    """Parse a stored schedule expression, with ``anchor`` as the moment at which it was written.

    It passed the checks at that time, so today's limit for the shortest interval and the check for past moments do not
    apply. Raises ``InvalidEdit`` if it cannot be parsed.
    """
    return _read(written, read_zone(zone), anchor, _SMALLEST)


def check_jitter(schedule: Schedule, seconds: int) -> None:
    """Raise ``InvalidEdit`` for a jitter above one hour, or of at least half the interval: two runs could meet."""
    if not 0 <= seconds <= LONGEST_JITTER:
        raise InvalidEdit(f"the jitter must be from 0 to {LONGEST_JITTER} seconds")
    if isinstance(schedule, Interval) and 2 * seconds >= schedule.length.total_seconds() and seconds:
        raise InvalidEdit(
            "the jitter must be less than half of the interval, here less than "
            f"{schedule.length.total_seconds() / 2:g} seconds"
        )


def read_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name; raises ``InvalidEdit`` for an unknown name, with the nearest known one."""
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
