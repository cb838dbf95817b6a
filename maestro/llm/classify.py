"""Turns whatever a failed model call raised into the one of our errors that says what to do about it.

The class an exception has in litellm is no evidence: the same failure has another one with every provider. Evidence
is what was seen on the wire; the chain of causes counts where nothing was seen.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from maestro.domain.llm.errors import (
    AccountUnusable,
    AnswerTooLarge,
    AuthenticationFailed,
    BadRequest,
    CallSite,
    ContextOverflow,
    LLMFailure,
    ModelTimeout,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
    ToolsUnsupported,
)
from maestro.llm.error_body import Said, read, told_to_people
from maestro.llm.retry_after import waiting_time
from maestro.llm.wire import Exchange, OversizedBody

CAUSES_LIMIT = 16
"""How deep a chain of causes is followed; it may be a circle."""

_QUOTA = re.compile(
    r"insufficient_quota|insufficient credits|credit balance|specified API usage limits|billing[ _]hard[ _]limit"
    r"|key limit exceeded|billing_not_active",
    re.IGNORECASE,
)
# Gemini says this of a limit per minute too; then it says when to come back.
_QUOTA_UNLESS_TOLD_TO_WAIT = re.compile(r"exceeded your current quota", re.IGNORECASE)
_BAD_KEY = re.compile(
    r"api[ _]key[ _](not valid|invalid|expired)|invalid_api_key|organization has been disabled", re.IGNORECASE
)
# A refusal of the request quotes it, after its own beginning.
_BEGINNING = r"\s*(?:you (?:have )?(?:reached )?)?(?:your |this |the )?(?:"
_BEGINS_WITH_QUOTA = re.compile(f"{_BEGINNING}{_QUOTA.pattern}|{_QUOTA_UNLESS_TOLD_TO_WAIT.pattern})", re.IGNORECASE)
_BEGINS_WITH_BAD_KEY = re.compile(f"{_BEGINNING}{_BAD_KEY.pattern})", re.IGNORECASE)
# A 403 that says nothing of the key: what one user wrote, or one agent wants, must not take the account from others.
_FORBIDDEN_REQUEST = re.compile(
    r"input was flagged|requires moderation|\"flagged_input\"|not have access to( the)? model|model_not_found",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context_length_exceeded|context[ -](length|window|limit|size)|prompt is too long|input is too long"
    r"|input token count|maximum number of tokens allowed|reduce the length of the messages",
    re.IGNORECASE,
)
_NO_TOOLS = re.compile(
    r"not support (tools|tool use|tool calling|function calling)|no endpoints found that support tool use"
    r"|'tools' is not supported|function calling is not (enabled|supported)",
    re.IGNORECASE,
)

# What was wrong before anything was sent, and will be wrong again; the library reports it as a failing provider's 500.
_MISTAKES = frozenset(
    (
        "AttributeError",
        "ImportError",
        "KeyError",
        "ModuleNotFoundError",
        "TypeError",
        "UnicodeEncodeError",
        "ValueError",
    )
)

# Refusals that are about the account, not about what was asked of it.
_OF_THE_ACCOUNT = frozenset((401, 402, 403, 429))

# Refusals that pass by themselves.
_PASSING = frozenset((408, 409, 425))

_ADVICE: Mapping[type[LLMFailure], str] = {
    RateLimited: "A second account would answer meanwhile.",
    QuotaExhausted: "Add credit or raise the limit at the provider, or add another account.",
    AnswerTooLarge: "Check what answers at the account's baseUrl; raise llm.maxAnswerBytes if it is right.",
    AuthenticationFailed: "Give the account a working key, or check what it may use and enable it again.",
    ToolsUnsupported: "Choose a model that can call tools, or give the agent none.",
    ContextOverflow: "Shorten the conversation, or choose a model with a larger window.",
    BadRequest: "Check the account's model and baseUrl, and that the model takes images if any were sent.",
    AccountUnusable: "Check how the account's provider is spelled, and its model, baseUrl and key.",
    ModelTimeout: "Check that the provider is up; a slow model may need a larger llm.totalTimeoutSeconds.",
    ProviderUnavailable: "Check the provider's status page, and the account's baseUrl if it has one.",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a failed call: HTTP status (None: no answer), headers in lower case, text to recognise it by.

    The text may hold prompts and keys; it is searched and never shown.
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    timed_out: bool = False
    cause: str = ""
    """The innermost exception's class, which tells a refused connection from a name that does not resolve."""
    oversized: bool = False
    """Whether reading ended at our limit."""
    sent: bool = True
    """Whether a request was seen to leave; a status without one may be the library's own."""


def evidence(error: BaseException, exchange: Exchange) -> Evidence:
    """Gather what the wire and the chain of causes say about a failure."""
    chain = list(_causes(error))
    timed_out = any("timeout" in type(cause).__name__.lower() for cause in chain)
    if exchange.requests:
        cause, oversized = type(chain[-1]).__name__, any(isinstance(cause, OversizedBody) for cause in chain)
        return Evidence(exchange.status, _lower(exchange.headers), exchange.body, timed_out, cause, oversized)
    statuses = [status for cause in chain if isinstance(status := getattr(cause, "status_code", None), int)]
    told = (getattr(cause, "litellm_response_headers", None) for cause in chain)
    headers: Mapping[str, str] = next(filter(None, told), {})
    # The innermost status is the provider's; litellm's own mapping sits on top of it.
    status, text = statuses[-1] if statuses else None, " ".join(map(str, chain))
    return Evidence(status, _lower(headers), text, timed_out, type(chain[-1]).__name__, sent=False)


def classify(site: CallSite, found: Evidence, now: datetime) -> LLMFailure:
    """Return our error for a failure, with none of its text; ``now`` turns dates into waiting times."""
    said = read(found.text) if found.sent else told_to_people(found.text)
    wait = waiting_time(found.headers, said.text, now)
    kind = _kind(found, said, told_to_wait=wait is not None)
    status = found.status if kind is not AccountUnusable else None
    answer = f"HTTP {status}" if status else "no answer" if found.sent else "no request"
    if found.cause and (status or 0) < 300:
        answer += f" ({found.cause})"
    asked = f" It asks to wait {wait.total_seconds():.0f} s." if wait is not None and kind.retryable else ""
    where = f"{site.provider} account {site.account!r}, model {site.model!r}, {answer}"
    failure = kind(f"{where}: {kind.public}{asked} {_ADVICE[kind]}")
    failure.site, failure.status = site, status
    failure.retry_after = wait if kind.retryable else None
    return failure


def _kind(found: Evidence, said: Said, *, told_to_wait: bool) -> type[LLMFailure]:
    """Choose the class by status; the text counts only where the provider refused the request."""
    status = found.status or 0
    if found.oversized:
        return AnswerTooLarge
    if 300 <= status < 500 and status not in _PASSING:
        refusal = _kind_of_refusal(status, said, told_to_wait=told_to_wait)
        return AccountUnusable if refusal is BadRequest and not found.sent else refusal
    if not found.sent and found.cause in _MISTAKES:
        return AccountUnusable
    # litellm calls some error statuses a timeout; ours is only the one that we waited for.
    return ModelTimeout if found.timed_out and status < 300 else ProviderUnavailable


def _kind_of_refusal(status: int, said: Said, *, told_to_wait: bool) -> type[LLMFailure]:
    """Tell refusals apart: money hides behind 400, 403 and 429, and what is quoted of a person speaks of anything."""
    if status == 403 and _FORBIDDEN_REQUEST.search(said.text):
        return BadRequest
    if status == 402 or _says_quota(status, said, told_to_wait=told_to_wait):
        return QuotaExhausted
    if status == 429:
        return RateLimited
    if status in (401, 403) or _BAD_KEY.search(said.codes) or any(map(_BEGINS_WITH_BAD_KEY.match, said.sentences)):
        return AuthenticationFailed
    if _NO_TOOLS.search(said.text):
        return ToolsUnsupported
    return ContextOverflow if _CONTEXT.search(said.text) else BadRequest


def _says_quota(status: int, said: Said, *, told_to_wait: bool) -> bool:
    if status not in _OF_THE_ACCOUNT and any(map(_BEGINS_WITH_QUOTA.match, said.sentences)):
        return True
    text = said.text if status in _OF_THE_ACCOUNT else said.codes
    return bool(_QUOTA.search(text) or (not told_to_wait and _QUOTA_UNLESS_TOLD_TO_WAIT.search(text)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what led to it, the outermost first."""
    cause: BaseException | None = error
    for _ in range(CAUSES_LIMIT):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _lower(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}
