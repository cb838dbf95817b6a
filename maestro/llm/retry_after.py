"""Reads how long a provider asks to wait, in every form they have for it."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(days=31)
"""No provider bills by a longer period; what asks for more is a mistake."""

_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?")
_GEMINI_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')
_OPENAI_DELAY = re.compile(r"try again in ((?:\d{1,6}(?:\.\d{1,9})?(?:h|ms|m|s)){1,4})(?!\w)")
_AMOUNT = re.compile(r"([\d.]+)(h|ms|m|s)")
_UNITS = {
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_ANTHROPIC_DATE = re.compile(r"regain access on (\d{4}-\d\d-\d\d)(?: at (\d\d:\d\d))?")


def waiting_time(headers: Mapping[str, str], text: str, now: datetime) -> timedelta | None:
    """Return how long to wait, at most ``LONGEST``, None when nothing readable says; a date gone by is no wait.

    Headers, their names in lower case, go before the body: ``retry-after-ms``, ``retry-after`` in seconds or as a
    date, Gemini's ``retryDelay``, the "try again in 1m2.5s" of OpenAI and its like, and the date in Anthropic's
    spending-limit message (UTC).
    """
    wait = _wait(headers, text, now)
    return min(max(wait, timedelta()), LONGEST) if wait is not None else None


def _wait(headers: Mapping[str, str], text: str, now: datetime) -> timedelta | None:
    milliseconds, after = headers.get("retry-after-ms", ""), headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(milliseconds):
        return timedelta(milliseconds=float(milliseconds))
    if _NUMBER.fullmatch(after):
        return timedelta(seconds=float(after))
    if delay := _GEMINI_DELAY.search(text):
        return timedelta(seconds=float(delay[1]))
    if not after and (delay := _OPENAI_DELAY.search(text)):
        return sum((float(amount) * _UNITS[unit] for amount, unit in _AMOUNT.findall(delay[1])), timedelta())
    moment = _moment(after, text)
    return moment - now if moment else None


def _moment(after: str, text: str) -> datetime | None:
    """Read the date of the header, or that of the text; None when neither is one."""
    try:
        if after:
            moment = parsedate_to_datetime(after)
        elif found := _ANTHROPIC_DATE.search(text):
            moment = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}")
        else:
            return None
    except ValueError:  # whatever the provider wrote there, it is no date
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
