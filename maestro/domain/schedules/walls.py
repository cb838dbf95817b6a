"""What clocks on the wall show: an hour that they pass over never comes, one that they repeat comes twice."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

_SECOND = timedelta(seconds=1)


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
