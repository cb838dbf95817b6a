"""What the command ``claude`` said: an answer with its figures, or one of our failures."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from maestro.child_process import Ended, Outcome
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
from maestro.llm.cli_limits import limit_of

_NO_SESSION = re.compile(r"no conversation found|no deferred tool marker|session id .{0,80} not found", re.IGNORECASE)
_NO_OPTION = re.compile(r"unknown option|unrecognized option", re.IGNORECASE)

# In this order: the first that fits says what to do.
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


@dataclass(frozen=True, slots=True)
class Said:
    """What stood in the output; without ``usage`` the command gave no figures."""

    text: str
    failed: bool = False
    usage: Usage | None = None


def read(ended: Ended, *, as_json: bool) -> Said:
    """Return what the command said; asked for JSON it may still write plain text, above all of its troubles."""
    output = ended.output.decode(errors="replace")
    failed = ended.code != 0
    result = _result(output) if as_json else None
    if result is None:
        return Said(output.strip(), failed)
    text = result.get("result")
    return Said(
        text if isinstance(text, str) else "",
        failed or result.get("is_error") is True,
        _usage(result.get("usage")),
    )


def failure(ended: Ended, said: Said, site: CallSite, now: datetime) -> LLMFailure | None:
    """Return what went wrong, with none of the command's own words; None when it answered."""
    where = f"command claude of account {site.account!r}, model {site.model!r}"
    if ended.outcome is Outcome.TOO_LONG:
        return _at(site, ModelTimeout(f"{where}: no whole answer in time. {ModelTimeout.public}"))
    if ended.outcome is Outcome.TOO_MUCH:
        return _at(site, ProviderUnavailable(f"{where}: it wrote more than any answer. {_UNAVAILABLE}"))
    if not said.failed:
        return None
    return _at(site, _refusal(f"{where}, exit {ended.code}", _words(ended, said), now))


def has_no_session(ended: Ended, said: Said) -> bool:
    """Say whether it found nothing to continue."""
    return said.failed and _NO_SESSION.search(_words(ended, said)) is not None


def knows_no_option(ended: Ended, said: Said) -> bool:
    """Say whether it is a release that does not know one of our options; then it asked no model."""
    return said.failed and _NO_OPTION.search(_words(ended, said)) is not None


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


def _words(ended: Ended, said: Said) -> str:
    return f"{said.text}\n{ended.errors.decode(errors='replace')}"


def _result(output: str) -> dict[str, Any] | None:
    """Return the object with the result; some releases write the whole list of events, which it ends."""
    try:
        told: Any = json.loads(output)
    except ValueError:
        return None
    last = told[-1] if isinstance(told, list) and told else told
    return last if isinstance(last, dict) and last.get("type") == "result" else None


def _usage(told: Any) -> Usage | None:
    """Return the tokens; the command counts what was cached beside the input, we count it as a part of it."""
    if not isinstance(told, dict):
        return None
    read_, written = _count(told, "cache_read_input_tokens"), _count(told, "cache_creation_input_tokens")
    return Usage(
        input_tokens=_count(told, "input_tokens") + read_ + written,
        output_tokens=_count(told, "output_tokens"),
        cached_tokens=read_,
        cache_write_tokens=written,
    )


def _count(told: dict[str, Any], name: str) -> int:
    number = told.get(name)
    return number if isinstance(number, int) and number > 0 else 0
