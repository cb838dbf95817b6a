"""Formats times, durations, amounts and money as short texts for the pages."""

from datetime import UTC, datetime

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_WITHIN = (1_000_000, 24, 60, 60)
"""How many of each unit make one of the next larger unit."""


def far(moment: datetime, now: datetime) -> str:
    """Return the time until or since a moment, such as ``5 min ago`` or ``in 2 h``, as static/times.js does."""
    seconds = round((moment - now).total_seconds())
    if not seconds:
        return "now"
    size, unit = next((size, unit) for size, unit in _UNITS if abs(seconds) >= size)
    words = f"{abs(seconds) // size} {unit}"
    return f"in {words}" if seconds > 0 else f"{words} ago"


def clock(moment: datetime) -> str:
    """Return a time as date and time of day to the second, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def clock_time(moment: datetime, now: datetime) -> str:
    """Return the time of day in UTC, or the date if it is not today, in the format of static/times.js."""
    at, today = moment.astimezone(UTC), now.astimezone(UTC).date()
    return (
        f"{at:%H:%M:%S}" if at.date() == today else f"{at:%m-%d %H:%M}" if at.year == today.year else f"{at:%Y-%m-%d}"
    )


def span(milliseconds: int | float | None) -> str:
    """Return a duration as text, such as ``2 min 5 s``; a dash for None."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1_000:
        return f"{max(0, milliseconds):.0f} ms"  # The system clock may have been set back.
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    seconds = int(milliseconds // 1_000)
    parts = [(seconds // size % larger, unit) for (size, unit), larger in zip(_UNITS, _WITHIN, strict=True)]
    first = next(index for index, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def money(dollars: float | None) -> str:
    """Return a cost in US dollars, with more digits below one cent; a dash if the cost is unknown."""
    if dollars is None:
        return "–"
    return f"${dollars:,.2f}" if not 0 < dollars < 0.01 else f"${dollars:.6f}".rstrip("0")


def number(count: int | float | None) -> str:
    """Return a number with thousands separators; a dash for None."""
    return "–" if count is None else f"{count:,}"
