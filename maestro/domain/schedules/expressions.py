"""Schedule expressions: an interval, five-field cron in a time zone, or a single moment.

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
"""How people write a length of time."""

_EVERY = re.compile(r"every\s+([0-9]{1,9})\s*([a-z]+)", re.IGNORECASE)

_SECOND = timedelta(seconds=1)

FIRST_YEAR = 1970
"""What is earlier no zone may know a moment for."""

LAST_YEAR = 2099
"""Later than this Temporal knows no calendar."""

_AT = re.compile(r"at\s+([0-9]{4}-[0-9]{2}-[0-9]{2})[T\s]\s*([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)", re.IGNORECASE)
_IN = re.compile(r"in\s+([0-9]{1,9})\s*([a-z]+)", re.IGNORECASE)


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


def moments(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return when a clock on the wall shows this, in UTC: never, once or twice."""
    both = (moment_of(wall, zone, fold) for fold in (0, 1))
    return tuple(dict.fromkeys(filter(None, both)))


def moment_of(wall: datetime, zone: ZoneInfo, fold: int) -> datetime | None:
    """Return when a clock on the wall shows this for the first time, or with fold 1 for the last; None if never."""
    moment = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    return moment if moment.astimezone(zone).replace(tzinfo=None) == wall else None


def first_moment_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when a clock on the wall shows this for the first time, or the first moment after a gap over it."""
    # In a gap, fold 1 is read with the offset after it, which is a moment before it, and fold 0 the other way round.
    earlier, later = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    return moment_of(wall, zone, 0) or change_between(earlier, later, zone)


def change_between(earlier: datetime, later: datetime, zone: ZoneInfo) -> datetime:
    """Return the first second that has the offset of the later moment, where the clocks change once in between."""
    new = later.astimezone(zone).utcoffset()
    while later - earlier > _SECOND:
        middle = (earlier + (later - earlier) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == new:
            later = middle
        else:
            earlier = middle
    return later


def offset_at_noon(day: date, zone: ZoneInfo) -> timedelta | None:
    """Return how far the clocks are ahead of UTC at noon of a day; they change at night."""
    return datetime(day.year, day.month, day.day, 12, tzinfo=zone).utcoffset()


def clocks_change(day: date, zone: ZoneInfo) -> bool:
    """Say whether the clocks change between noon of this day and noon of the next."""
    return offset_at_noon(day, zone) != offset_at_noon(day + timedelta(days=1), zone)


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
