"""How schedules are written: ``every 15m``, or five-field cron in a time zone; all else is refused (decision 14)."""

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.cron_times import CronTimes, read_cron

SHORTEST = timedelta(seconds=30)
LONGEST = timedelta(days=366)

SCHEDULE_GRAMMAR = (
    "every N s|m|h|d (at least 30 s), such as every 15m; or five-field cron, such as 0 9 * * 1-5 for 9 o'clock on "
    "working days, in the time zone of the field timezone (an IANA name such as Europe/Amsterdam; UTC without it)"
)
"""The grammar in a sentence, as people and models are told."""

_EVERY = re.compile(r"every\s+([0-9]{1,9})\s*([a-z]+)", re.IGNORECASE)
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
}
_DAYS_AHEAD = 5 * 366


@dataclass(frozen=True)
class Interval:
    """Every so often."""

    length: timedelta


Schedule = Interval | CronTimes


def read_schedule(written: str, zone: str, now: datetime) -> Schedule:
    """Read a schedule that is meant in a time zone.

    Raises ``InvalidEdit``, in a sentence that names the fix: for what is neither form, for an interval under 30
    seconds, for an unknown zone, for a day that never comes, and for hours that are named where the clocks of the zone
    pass over them in the next five years: such a day would go by without its time.
    """
    place = read_zone(zone)
    schedule = _interval(written) if written.strip().lower().startswith("every") else read_cron(written)
    if isinstance(schedule, CronTimes) and schedule.fixed:
        _refuse_gaps(schedule, place, now)
    return schedule


def read_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name; raises ``InvalidEdit`` for one that does not exist."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        zones = {zone.lower(): zone for zone in available_timezones()}
    nearest = difflib.get_close_matches(name.lower().replace(" ", "_"), zones, n=1)
    hint = f"; did you mean {zones[nearest[0]]}?" if nearest else ", such as Europe/Amsterdam or UTC"
    raise InvalidEdit(f"there is no such time zone; write its IANA name{hint}")


def _interval(written: str) -> Interval:
    found = _EVERY.fullmatch(written.strip())
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise InvalidEdit("after every, write a number and s, m, h or d, such as every 15m")
    amount = int(found[1])
    length = unit * min(amount, LONGEST // unit + 1)
    if not SHORTEST <= length <= LONGEST:
        raise InvalidEdit(
            f"an interval has at least {SHORTEST.seconds} seconds and at most {LONGEST.days} days, such as every 15m"
        )
    return Interval(length)


def _is_shown(wall: datetime, zone: ZoneInfo) -> bool:
    """Say whether a clock on the wall ever shows this."""
    return wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall


def _refuse_gaps(cron: CronTimes, zone: ZoneInfo, now: datetime) -> None:
    today = now.astimezone(zone).date()
    for day in (today + timedelta(days=ahead) for ahead in range(_DAYS_AHEAD)):
        if _noon(day, zone) != _noon(day + timedelta(days=1), zone):
            walls = (*cron.on(day), *cron.on(day + timedelta(days=1)))
            missed = next((wall for wall in walls if not _is_shown(wall, zone)), None)
            if missed is not None:
                raise InvalidEdit(
                    f"on {missed:%Y-%m-%d} the clocks of {zone.key} go forward over {missed:%H:%M}; choose another "
                    "hour, or the time zone UTC"
                )


def _noon(day: date, zone: ZoneInfo) -> timedelta | None:
    return datetime(day.year, day.month, day.day, 12, tzinfo=zone).utcoffset()
