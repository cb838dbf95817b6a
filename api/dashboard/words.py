"""How pages say moments, spans, amounts and money: short, and the same everywhere."""

from datetime import UTC, datetime

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_WITHIN = (1_000_000, 24, 60, 60)
"""How many of each unit there are before the next one."""
_SMALL = 0.01
"""Dollars below which cents say too little."""


def far(moment: datetime, now: datetime) -> str:
    """Say how far away a moment is: ``5 min ago``, ``in 2 h``; static/times.js says it in the same words later."""
    seconds = round((moment - now).total_seconds())
    if not seconds:
        return "now"
    words = _largest(abs(seconds))
    return f"in {words}" if seconds > 0 else f"{words} ago"


def clock(moment: datetime) -> str:
    """Say a moment to the second, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def clock_time(moment: datetime, now: datetime) -> str:
    """Say a moment as a clock shows it in UTC, after the day where that is not today; static/times.js does so too."""
    at, today = moment.astimezone(UTC), now.astimezone(UTC).date()
    return (
        f"{at:%H:%M:%S}" if at.date() == today else f"{at:%m-%d %H:%M}" if at.year == today.year else f"{at:%Y-%m-%d}"
    )


def span(milliseconds: int | float | None) -> str:
    """Say how long something took."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1_000:
        return f"{max(0, milliseconds):.0f} ms"  # not negative, even if the system clock was set back
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    seconds = int(milliseconds // 1_000)
    parts = [(seconds // size % larger, unit) for (size, unit), larger in zip(_UNITS, _WITHIN, strict=True)]
    at = next(place for place, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[at : at + 2] if count)


def money(dollars: float | None) -> str:
    """Return a cost in US dollars; a dash for an unknown cost, which is not the same as zero."""
    if dollars is None:
        return "–"
    return f"${dollars:,.2f}" if not 0 < dollars < _SMALL else f"${dollars:.6f}".rstrip("0")


def number(count: int | float | None) -> str:
    """Say an amount, with marks between the thousands."""
    return "–" if count is None else f"{count:,}"


def _largest(seconds: int) -> str:
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return f"{seconds // size} {unit}"
