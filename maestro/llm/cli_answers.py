"""Parses the output of the command ``claude``: an answer with its usage, a rate limit, or another failure."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from maestro.child_process import ProgramEnd, ProgramResult
from maestro.domain.llm.errors import (
    AuthenticationFailed,
    BadRequest,
    CallSite,
    ContextOverflow,
    LLMFailure,
    ModelTimeout,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
)
from maestro.domain.llm.prompts import Usage
from maestro.llm.failures import LONGEST

UNTOLD = timedelta(hours=1)
"""The cool-down after a limit whose message does not say when it ends."""

_LIMIT = re.compile(
    r"\b(?:hit your\b[^.\n|]*\blimit|(?:usage|session|weekly|5-hour|Opus|Sonnet) limit reached)", re.IGNORECASE
)
_EPOCH = re.compile(r"limit reached\|(\d{10,13})\b", re.IGNORECASE)
_RESETS = re.compile(
    r"\bresets?(?: at)? "
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (?P<day>\d{1,2})(?:,| at)* )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>am|pm)?\b(?: \((?P<zone>[\w+/-]+)\))?",
    re.IGNORECASE,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONG_AGO = timedelta(days=180)

_NO_SESSION = re.compile(r"no conversation found|no deferred tool marker|session id .{0,80} not found", re.IGNORECASE)
_NO_OPTION = re.compile(r"unknown option|unrecognized option", re.IGNORECASE)

# The first matching pattern decides, so their order matters.
_KINDS: tuple[tuple[type[LLMFailure], "re.Pattern[str]", str], ...] = (
    (
        QuotaExhausted,
        re.compile(r"credit balance is too low|out of extra usage", re.IGNORECASE),
        "Add credit at the provider, or add another account.",
    ),
    (
        AuthenticationFailed,
        re.compile(
            r"/login|not logged in|invalid api key|oauth token|authentication_error|API Error: 40[13]\b", re.IGNORECASE
        ),
        "Log in once with `claude` as the user that runs Maestro, with the account's homeDir as CLAUDE_CONFIG_DIR.",
    ),
    (
        ContextOverflow,
        re.compile(r"prompt is too long|context[ -](?:window|limit|length)", re.IGNORECASE),
        "Shorten the conversation, or choose a model with a larger window.",
    ),
    (RateLimited, re.compile(r"API Error: 429\b|rate_limit_error", re.IGNORECASE), "Another account would answer."),
    (
        BadRequest,
        re.compile(r"issue with the selected model|API Error: 4(?:00|04|13|22)\b|invalid_request_error", re.IGNORECASE),
        "Check the account's model.",
    ),
)
_UNAVAILABLE = "Run `claude --print` by hand as the user that runs Maestro to see what is wrong."


def limit_of(text: str, now: datetime) -> timedelta | None:
    """Return the time until a limit ends, None when the text is no message about a limit.

    A time of day means its next occurrence, in the time zone that the text names or else in that of this machine.
    """
    if not _LIMIT.search(text):
        return None
    until = _moment(text, now)
    return min(max(until - now, timedelta()), LONGEST) if until else UNTOLD


def _moment(text: str, now: datetime) -> datetime | None:
    """Return the time at which the limit ends, None when the text has no readable time."""
    try:
        if epoch := _EPOCH.search(text):
            number = int(epoch[1])
            return datetime.fromtimestamp(number / 1000 if number > 10**11 else number, UTC)
        found = _RESETS.search(text)
        return _next(found, now) if found else None
    except (ValueError, KeyError, OverflowError, OSError):  # an impossible date, hour or zone counts as unreadable
        return None


def _next(found: "re.Match[str]", now: datetime) -> datetime:
    """Return the next occurrence of a date or an hour of the day; raises ``ValueError`` for any other text."""
    zone = ZoneInfo(found["zone"]) if found["zone"] else None
    local = now.astimezone(zone)
    hour, minute = _hour(int(found["hour"]), found["half"]), int(found["minute"] or 0)
    if found["month"]:
        month, day = _MONTHS.index(found["month"].lower()) + 1, int(found["day"])
        moment = _utc(datetime(local.year, month, day, hour, minute), zone)
        return moment if now - moment < _LONG_AGO else _utc(datetime(local.year + 1, month, day, hour, minute), zone)
    today = datetime(local.year, local.month, local.day, hour, minute)
    moment = _utc(today, zone)
    # Add a calendar day, which has 23 or 25 hours when daylight saving time begins or ends.
    return moment if moment > now else _utc(today + timedelta(days=1), zone)


def _hour(hour: int, half: str | None) -> int:
    if half is None:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(f"{hour} {half} is no hour")
    return hour % 12 + (12 if half.lower() == "pm" else 0)


def _utc(local: datetime, zone: tzinfo | None) -> datetime:
    """Convert a local time to UTC; a time without a zone is in that of this machine."""
    return local.replace(tzinfo=zone).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The answer in the command's output; ``usage`` is None when the command reported no figures."""

    text: str
    failed: bool = False
    usage: Usage | None = None


def read(ended: ProgramResult, *, as_json: bool) -> CommandAnswer:
    """Parse the output; the command may write plain text although JSON was requested, above all for errors."""
    output = ended.output.decode(errors="replace")
    failed = ended.code != 0
    result = _result(output) if as_json else None
    if result is None:
        return CommandAnswer(output.strip(), failed)
    text = result.get("result")
    return CommandAnswer(
        text if isinstance(text, str) else "",
        failed or result.get("is_error") is True,
        _usage(result.get("usage")),
    )


def failure(ended: ProgramResult, answer: CommandAnswer, site: CallSite, now: datetime) -> LLMFailure | None:
    """Return the failure in the output, without any text of the command; None when the command answered."""
    where = f"command claude of account {site.account!r}, model {site.model!r}"
    if ended.outcome is ProgramEnd.TOO_LONG:
        return _at(site, ModelTimeout(f"{where}: no whole answer in time. {ModelTimeout.public}"))
    if ended.outcome is ProgramEnd.TOO_MUCH:
        return _at(site, ProviderUnavailable(f"{where}: it wrote more than any answer. {_UNAVAILABLE}"))
    if not answer.failed:
        return None
    return _at(site, _refusal(f"{where}, exit {ended.code}", _words(ended, answer), now))


def has_no_session(ended: ProgramResult, answer: CommandAnswer) -> bool:
    """Return whether the command reported that the session to continue does not exist."""
    return answer.failed and _NO_SESSION.search(_words(ended, answer)) is not None


def knows_no_option(ended: ProgramResult, answer: CommandAnswer) -> bool:
    """Return whether the installed release of the command lacks an option; it then has called no model."""
    return answer.failed and _NO_OPTION.search(_words(ended, answer)) is not None


def _refusal(where: str, words: str, now: datetime) -> LLMFailure:
    wait = limit_of(words, now)
    if wait is not None:
        seconds = f"{wait.total_seconds():.0f}"
        return RateLimited(f"{where}: the subscription's limit is reached; it resets in {seconds} s.", wait)
    for kind, pattern, advice in _KINDS:
        if pattern.search(words):
            return kind(f"{where}: {kind.public} {advice}")
    return ProviderUnavailable(f"{where}: {ProviderUnavailable.public} {_UNAVAILABLE}")


def _at(site: CallSite, failed: LLMFailure) -> LLMFailure:
    failed.site = site
    return failed


def _words(ended: ProgramResult, answer: CommandAnswer) -> str:
    return f"{answer.text}\n{ended.errors.decode(errors='replace')}"


def _result(output: str) -> dict[str, Any] | None:
    """Return the result object; some releases write a list of all events, of which the result is the last."""
    try:
        data: Any = json.loads(output)
    except ValueError:
        return None
    last = data[-1] if isinstance(data, list) and data else data
    return last if isinstance(last, dict) and last.get("type") == "result" else None


def _usage(data: Any) -> Usage | None:
    """Return the token usage; the command counts cached tokens apart from the input, Maestro within it."""
    if not isinstance(data, dict):
        return None
    read_, written = _count(data, "cache_read_input_tokens"), _count(data, "cache_creation_input_tokens")
    return Usage(
        input_tokens=_count(data, "input_tokens") + read_ + written,
        output_tokens=_count(data, "output_tokens"),
        cached_tokens=read_,
        cache_write_tokens=written,
    )


def _count(data: dict[str, Any], name: str) -> int:
    number = data.get(name)
    return number if isinstance(number, int) and number > 0 else 0
