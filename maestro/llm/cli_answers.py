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

DEFAULT_COOL_DOWN = timedelta(hours=1)
"""The cool-down after a limit if the message does not say when the limit ends."""

_LIMIT = re.compile(
    r"\b(?:hit your\b[^.\n|]*\blimit|(?:usage|session|weekly|5-hour|Opus|Sonnet) limit reached)", re.IGNORECASE
)
_EPOCH = re.compile(r"limit reached\|(\d{10,13})\b", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_RESETS = re.compile(
    rf"\bresets?(?: at)? (?:(?P<month>{'|'.join(_MONTHS)})[a-z]* (?P<day>\d{{1,2}})(?:,| at)* )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>am|pm)?\b(?: \((?P<zone>[\w+/-]+)\))?",
    re.IGNORECASE,
)
_LONG_AGO = timedelta(days=180)

NO_SESSION = re.compile(r"no conversation found|no deferred tool marker|session id .{0,80} not found", re.IGNORECASE)
"""The session to continue does not exist."""
NO_OPTION = re.compile(r"unknown option|unrecognized option", re.IGNORECASE)
"""The command's release does not know an option; no model was called then."""

# The first pattern that matches decides the error class, so the order of the patterns matters.
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


def time_until_limit_ends(text: str, now: datetime) -> timedelta | None:
    """Return the time until a subscription's limit ends; None when the text reports no limit.

    A time of day means its next occurrence, in the time zone that the text names or else in that of this machine.
    """
    if not _LIMIT.search(text):
        return None
    until = _limit_end(text, now)
    return min(max(until - now, timedelta()), LONGEST) if until else DEFAULT_COOL_DOWN


def _limit_end(text: str, now: datetime) -> datetime | None:
    """Return the time at which the limit ends, None when the text has no readable time."""
    try:
        if epoch := _EPOCH.search(text):
            number = int(epoch[1])
            return datetime.fromtimestamp(number / 1000 if number > 10**11 else number, UTC)
        reset = _RESETS.search(text)
        return _next_reset(reset, now) if reset else None
    except (ValueError, KeyError, OverflowError, OSError):  # the text names an impossible date, hour or time zone
        return None


def _next_reset(reset: "re.Match[str]", now: datetime) -> datetime:
    """Return the next occurrence of a date or an hour of the day; raises ``ValueError`` for an impossible one."""
    zone = ZoneInfo(reset["zone"]) if reset["zone"] else None
    local = now.astimezone(zone)
    hour, minute, half = int(reset["hour"]), int(reset["minute"] or 0), reset["half"]
    if half is not None:
        if not 1 <= hour <= 12:
            raise ValueError(f"{hour} {half} is no hour")
        hour = hour % 12 + (12 if half.lower() == "pm" else 0)
    if reset["month"]:
        month, day = _MONTHS.index(reset["month"].lower()) + 1, int(reset["day"])
        moment = _to_utc(datetime(local.year, month, day, hour, minute), zone)
        return moment if now - moment < _LONG_AGO else _to_utc(datetime(local.year + 1, month, day, hour, minute), zone)
    today = datetime(local.year, local.month, local.day, hour, minute)
    moment = _to_utc(today, zone)
    # Add a calendar day, which has 23 or 25 hours when daylight saving time begins or ends.
    return moment if moment > now else _to_utc(today + timedelta(days=1), zone)


def _to_utc(local: datetime, zone: tzinfo | None) -> datetime:
    """Convert a local time to UTC; without a time zone, the time is local to this machine."""
    return local.replace(tzinfo=zone).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The answer in the command's output; ``usage`` is None when the command reported no figures."""

    text: str
    failed: bool = False
    usage: Usage | None = None


def parse_output(ended: ProgramResult, *, as_json: bool) -> CommandAnswer:
    """Parse the output of the command, which may write plain text although JSON was requested, above all for errors."""
    output, failed = ended.output.decode(errors="replace"), ended.code != 0
    try:
        data: Any = json.loads(output) if as_json else None
    except ValueError:
        data = None
    # Some releases of the command write a list of all events; the last event is the result.
    result = data[-1] if isinstance(data, list) and data else data
    if not isinstance(result, dict) or result.get("type") != "result":
        return CommandAnswer(output.strip(), failed)
    text, usage = result.get("result"), _read_usage(result.get("usage"))
    return CommandAnswer(text if isinstance(text, str) else "", failed or result.get("is_error") is True, usage)


def find_failure(ended: ProgramResult, answer: CommandAnswer, site: CallSite, now: datetime) -> LLMFailure | None:
    """Return the failure that the output reports, without quoting the output; None when the command answered."""
    where = f"command claude of account {site.account!r}, model {site.model!r}"
    if ended.outcome is ProgramEnd.TOO_LONG:
        failed: LLMFailure = ModelTimeout(f"{where}: no whole answer in time. {ModelTimeout.public}")
    elif ended.outcome is ProgramEnd.TOO_MUCH:
        failed = ProviderUnavailable(f"{where}: the command wrote more output than an answer can have. {_UNAVAILABLE}")
    elif answer.failed:
        failed = _classify_error(f"{where}, exit {ended.code}", _output_and_errors(ended, answer), now)
    else:
        return None
    failed.site = site
    return failed


def reports(problem: "re.Pattern[str]", ended: ProgramResult, answer: CommandAnswer) -> bool:
    """Return whether the command failed with this problem."""
    return answer.failed and problem.search(_output_and_errors(ended, answer)) is not None


def _classify_error(where: str, text: str, now: datetime) -> LLMFailure:
    wait = time_until_limit_ends(text, now)
    if wait is not None:
        seconds = f"{wait.total_seconds():.0f}"
        return RateLimited(f"{where}: the subscription's limit is reached; it resets in {seconds} s.", wait)
    for kind, pattern, advice in _KINDS:
        if pattern.search(text):
            return kind(f"{where}: {kind.public} {advice}")
    return ProviderUnavailable(f"{where}: {ProviderUnavailable.public} {_UNAVAILABLE}")


def _output_and_errors(ended: ProgramResult, answer: CommandAnswer) -> str:
    return f"{answer.text}\n{ended.errors.decode(errors='replace')}"


def _read_usage(data: Any) -> Usage | None:
    """Return the token usage; the command excludes cached tokens from the input tokens, Maestro includes them."""
    if not isinstance(data, dict):
        return None
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    reported = (data.get(name) for name in names)
    uncached, output, cached, written = (max(count, 0) if isinstance(count, int) else 0 for count in reported)
    return Usage(
        input_tokens=uncached + cached + written,
        output_tokens=output,
        cached_tokens=cached,
        cache_write_tokens=written,
    )
