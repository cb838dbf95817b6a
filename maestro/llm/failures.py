"""Classifies a failed model call: its error class, whether to retry it, and after which wait."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from maestro.domain.llm.calls import (
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
from maestro.llm.wire import HttpExchange, OversizedBody

SENTENCE_LIMIT = 2_000
"""The most characters of an error message that are searched; a provider's own words precede a quoted prompt."""

PAGE_LIMIT = 64 * 1024
"""The most characters of an error body that are searched, if the body is not JSON."""

_CODES = ("code", "type", "status")
_DETAILS = ("reason", "retryDelay")
_FLAG = "flagged_input"
"""The field in which OpenRouter quotes flagged input; its name counts as an error code, its content is ignored."""

LONGEST = timedelta(days=31)
"""The longest wait: no provider bills by a longer period, so a longer wait in an error is a mistake."""

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

CAUSES_LIMIT = 16
"""The most exceptions that are followed in a chain of causes, because a chain may be circular."""

_QUOTA = re.compile(
    r"insufficient_quota|insufficient credits|credit balance|specified API usage limits|billing[ _]hard[ _]limit"
    r"|key limit exceeded|billing_not_active",
    re.IGNORECASE,
)
# Gemini sends "exceeded your current quota" also for a limit per minute, but then with a waiting time.
_QUOTA_UNLESS_TOLD_TO_WAIT = re.compile(r"exceeded your current quota", re.IGNORECASE)
_BAD_KEY = re.compile(
    r"api[ _]key[ _](not valid|invalid|expired)|invalid_api_key|organization has been disabled", re.IGNORECASE
)
# The message of a refusal may quote the user's prompt, but never begins with the quote.
_BEGINNING = r"\s*(?:you (?:have )?(?:reached )?)?(?:your |this |the )?(?:"
_BEGINS_WITH_QUOTA = re.compile(f"{_BEGINNING}{_QUOTA.pattern}|{_QUOTA_UNLESS_TOLD_TO_WAIT.pattern})", re.IGNORECASE)
_BEGINS_WITH_BAD_KEY = re.compile(f"{_BEGINNING}{_BAD_KEY.pattern})", re.IGNORECASE)
# HTTP 403 because of one input or one model must not disable the account for all other requests.
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

# litellm raises these errors, as HTTP 500, for a request that is invalid before it is sent: no retry can help.
_MISTAKES = frozenset(
    kind.__name__
    for kind in (AttributeError, ImportError, KeyError, ModuleNotFoundError, TypeError, UnicodeEncodeError, ValueError)
)

# HTTP statuses that refuse the account, not the request.
_ACCOUNT_STATUSES = frozenset((401, 402, 403, 429))

# HTTP statuses of refusals that end after a time, without any change of the request or the account.
_TEMPORARY_STATUSES = frozenset((408, 409, 425))

_ADVICE: Mapping[type[LLMFailure], str] = {
    RateLimited: "A second account would answer meanwhile.",
    QuotaExhausted: "Add credit or raise the limit at the provider, or add another account.",
    AnswerTooLarge: "Check which server is at the account's baseUrl; if it is the right one, raise llm.maxAnswerBytes.",
    AuthenticationFailed: "Give the account a working key, or check the key's permissions; then enable it again.",
    ToolsUnsupported: "Choose a model that can call tools, or give the agent no tools.",
    ContextOverflow: "Shorten the conversation, or choose a model with a larger window.",
    BadRequest: "Check the account's model and baseUrl, and that the model takes images if any were sent.",
    AccountUnusable: "Check the spelling of the account's provider, and the account's model, baseUrl and key.",
    ModelTimeout: "Check that the provider is up; a slow model may need a larger llm.totalTimeoutSeconds.",
    ProviderUnavailable: "Check the provider's status page, and the account's baseUrl if it has one.",
}


@dataclass(frozen=True, slots=True)
class ErrorBodyText:
    """The text of an error body: ``codes`` that only the provider writes, and ``sentences`` that may quote a prompt."""

    codes: str = ""
    sentences: tuple[str, ...] = ()

    @property
    def whole_text(self) -> str:
        """The codes and the sentences as one text, the codes first."""
        return "\n".join((self.codes, *self.sentences))


def parse_error_body(body: str) -> ErrorBodyText:
    """Parse an error body; text that is not JSON counts as the provider's own words, and truncated JSON is ignored."""
    try:
        whole: Any = json.loads(body)
    except (ValueError, RecursionError):
        # Truncated JSON may quote a prompt anywhere in it, so none of it is read.
        return ErrorBodyText() if body.lstrip().startswith(("{", "[")) else ErrorBodyText(codes=body[:PAGE_LIMIT])
    if isinstance(whole, list):
        whole = next(iter(whole), None)
    return _parse_error_object(whole) if isinstance(whole, Mapping) else ErrorBodyText(codes=body[:PAGE_LIMIT])


def error_sentence(text: str) -> ErrorBodyText:
    """Return an error message that may quote a prompt, limited in length and without double quotes."""
    # Double quotes are replaced, so that a quoted prompt cannot look like a JSON field.
    return ErrorBodyText(sentences=(text[:SENTENCE_LIMIT].replace('"', "'"),))


def _parse_error_object(whole: Mapping[str, Any]) -> ErrorBodyText:
    """Parse an error object: its ``error`` is an object, a sentence (Ollama), or missing (older vLLM)."""
    error = whole.get("error") or whole
    if not isinstance(error, Mapping):
        return ErrorBodyText(
            "\n".join(list_fields(whole, _CODES)), (*list_sentences(error), *list_sentences(whole.get("message")))
        )
    details, metadata = error.get("details"), _mapping_or_empty(error.get("metadata"))
    codes = list(list_fields(error, _CODES))
    for detail in details if isinstance(details, list) else ():
        codes += list_fields(_mapping_or_empty(detail), _DETAILS)
    if _FLAG in metadata:
        codes.append(f'"{_FLAG}"')
    # OpenRouter wraps the error of the provider to which it forwarded the request.
    raw, wrapped = metadata.get("raw"), ErrorBodyText()
    if isinstance(raw, str):
        wrapped = parse_error_body(raw) if raw.lstrip().startswith("{") else error_sentence(raw)
    sentences = list_sentences(error.get("message") or error.get("detail"))
    return ErrorBodyText("\n".join(filter(None, [*codes, wrapped.codes])), (*sentences, *wrapped.sentences))


def list_fields(source: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    """Yield the named fields that the object has, each as JSON text."""
    for name in names:
        if isinstance(value := source.get(name), str | int):
            yield f'"{name}": "{value}"'


def list_sentences(text: Any) -> tuple[str, ...]:
    return error_sentence(text).sentences if isinstance(text, str) else ()


def _mapping_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def requested_wait(headers: Mapping[str, str], text: str, now: datetime) -> timedelta | None:
    """Return how long the provider asks to wait, at most ``LONGEST``; None if it asks for no valid wait.

    Headers (names in lower case) are searched before the body. Known forms: ``retry-after-ms``; ``retry-after`` in
    seconds or as a date; Gemini's ``retryDelay``; "try again in 1m2.5s" of OpenAI and similar providers; the date (UTC)
    in Anthropic's spending-limit message.
    """
    milliseconds, after = headers.get("retry-after-ms", ""), headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(milliseconds):
        wait = timedelta(milliseconds=float(milliseconds))
    elif _NUMBER.fullmatch(after):
        wait = timedelta(seconds=float(after))
    elif delay := _GEMINI_DELAY.search(text):
        wait = timedelta(seconds=float(delay[1]))
    elif not after and (delay := _OPENAI_DELAY.search(text)):
        wait = sum((float(amount) * _UNITS[unit] for amount, unit in _AMOUNT.findall(delay[1])), timedelta())
    elif moment := _retry_date(after, text):
        wait = moment - now
    else:
        return None
    return min(max(wait, timedelta()), LONGEST)


def _retry_date(header: str, text: str) -> datetime | None:
    """Return the date for a retry from the header, or else from the text; None when neither has a valid date."""
    try:
        if header:
            moment = parsedate_to_datetime(header)
        elif date := _ANTHROPIC_DATE.search(text):
            moment = datetime.fromisoformat(f"{date[1]}T{date[2] or '00:00'}")
        else:
            return None
    except ValueError:  # An invalid date in the header is ignored.
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FailureEvidence:
    """The facts of a failed call: HTTP status (None: no answer), headers (lower-case names), and the text of the error.

    The text may contain prompts and keys; it is only searched, and never shown or logged.
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    timed_out: bool = False
    cause: str = ""
    """The class name of the innermost exception: it distinguishes a refused connection from a DNS failure."""
    oversized: bool = False
    """Whether the answer was longer than the limit of bytes."""
    sent: bool = True
    """Whether a request left this process; if none did, litellm may have invented the status."""


def collect_evidence(error: BaseException, exchange: HttpExchange) -> FailureEvidence:
    """Collect the facts of a failed call from its HTTP exchange and from the chain of its exceptions."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and len(chain) < CAUSES_LIMIT:
        chain.append(cause)
    timed_out = any("timeout" in type(cause).__name__.lower() for cause in chain)
    if exchange.requests:
        name, oversized = type(chain[-1]).__name__, any(isinstance(cause, OversizedBody) for cause in chain)
        return FailureEvidence(
            exchange.status, lower_case_names(exchange.headers), exchange.body, timed_out, name, oversized
        )
    statuses = [status for cause in chain if isinstance(status := getattr(cause, "status_code", None), int)]
    reported = (getattr(cause, "litellm_response_headers", None) for cause in chain)
    headers: Mapping[str, str] = next(filter(None, reported), {})
    # The innermost status is the provider's; outer exceptions carry litellm's mapping of it.
    status, text = statuses[-1] if statuses else None, " ".join(map(str, chain))
    return FailureEvidence(status, lower_case_names(headers), text, timed_out, type(chain[-1]).__name__, sent=False)


def classify_failure(site: CallSite, facts: FailureEvidence, now: datetime) -> LLMFailure:
    """Return the failure of a call, without quoting the provider; ``now`` converts dates to waiting times."""
    body = parse_error_body(facts.text) if facts.sent else error_sentence(facts.text)
    wait = requested_wait(facts.headers, body.whole_text, now)
    kind = _error_class(facts, body, asks_to_wait=wait is not None)
    status = facts.status if kind is not AccountUnusable else None
    answer = f"HTTP {status}" if status else "no answer" if facts.sent else "no request"
    if facts.cause and (status or 0) < 300:
        answer += f" ({facts.cause})"
    wait_request = f" It asks to wait {wait.total_seconds():.0f} s." if wait is not None and kind.retryable else ""
    where = f"{site.provider} account {site.account!r}, model {site.model!r}, {answer}"
    failure = kind(f"{where}: {kind.public}{wait_request} {_ADVICE[kind]}")
    failure.site, failure.status = site, status
    failure.retry_after = wait if kind.retryable else None
    return failure


def _error_class(facts: FailureEvidence, body: ErrorBodyText, *, asks_to_wait: bool) -> type[LLMFailure]:
    """Choose the error class by status; the text counts only where the provider refused the request."""
    status = facts.status or 0
    if facts.oversized:
        return AnswerTooLarge
    if 300 <= status < 500 and status not in _TEMPORARY_STATUSES:
        refusal = _refusal_class(status, body, asks_to_wait=asks_to_wait)
        return AccountUnusable if refusal is BadRequest and not facts.sent else refusal
    if not facts.sent and facts.cause in _MISTAKES:
        return AccountUnusable
    # litellm reports some error statuses as timeouts; here only a missing answer is a timeout.
    return ModelTimeout if facts.timed_out and status < 300 else ProviderUnavailable


def _refusal_class(status: int, body: ErrorBodyText, *, asks_to_wait: bool) -> type[LLMFailure]:
    """Return the class of a refused request; providers report a used-up quota by the status 400, 402, 403 or 429."""
    if status == 403 and _FORBIDDEN_REQUEST.search(body.whole_text):
        return BadRequest
    if status == 402 or _is_quota_error(status, body, asks_to_wait=asks_to_wait):
        return QuotaExhausted
    if status == 429:
        return RateLimited
    if status in (401, 403) or _BAD_KEY.search(body.codes) or any(map(_BEGINS_WITH_BAD_KEY.match, body.sentences)):
        return AuthenticationFailed
    if _NO_TOOLS.search(body.whole_text):
        return ToolsUnsupported
    return ContextOverflow if _CONTEXT.search(body.whole_text) else BadRequest


def _is_quota_error(status: int, body: ErrorBodyText, *, asks_to_wait: bool) -> bool:
    if status not in _ACCOUNT_STATUSES and any(map(_BEGINS_WITH_QUOTA.match, body.sentences)):
        return True
    text = body.whole_text if status in _ACCOUNT_STATUSES else body.codes
    return bool(_QUOTA.search(text) or (not asks_to_wait and _QUOTA_UNLESS_TOLD_TO_WAIT.search(text)))


def lower_case_names(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}
