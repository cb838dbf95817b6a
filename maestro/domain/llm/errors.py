"""What can go wrong with a model call, told apart by what to do about it (facts: one class per action)."""

from dataclasses import dataclass
from datetime import timedelta

from maestro.domain.errors import MaestroError, Patience, Suspension, WaitReason
from maestro.domain.llm.prompts import Usage


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where a call went: the provider, the account by its name, the model."""

    provider: str
    account: str
    model: str


class LLMFailure(MaestroError):
    """The base of failed model calls; neither ``public`` nor ``str`` carries prompt, key or the provider's own text.

    ``site`` and ``status`` (HTTP) say where and how it failed; None when no request was sent or no answer came.
    ``usage`` and ``cost_usd`` are what an answer took that is of no use. ``instead`` is what to wait for when there is
    no further attempt: another account may be asked again by then.
    """

    public = "The model call failed."
    site: CallSite | None = None
    status: int | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    instead: Suspension | None = None
    patience = Patience.PROVIDER


class RateLimited(LLMFailure):
    """The provider asked to wait; ``retry_after`` says how long when it told us."""

    public = "The provider is limiting requests."
    retryable = True

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QuotaExhausted(LLMFailure):
    """The account has no credit left or reached its spending limit."""

    public = "The account's quota is used up."
    retryable = True


class AuthenticationFailed(LLMFailure):
    """The key is wrong, expired or lacks the right."""

    public = "The provider refused the account's key."


class ProviderUnavailable(LLMFailure):
    """5xx, a reset, a bad body: the provider's side failed."""

    public = "The provider failed to answer."
    retryable = True


class ModelTimeout(LLMFailure):
    """No whole answer within the total deadline."""

    public = "The provider did not answer in time."
    retryable = True


class ContextOverflow(LLMFailure):
    """The prompt is larger than the model's window."""

    public = "The prompt does not fit the model's context window."


class BadRequest(LLMFailure):
    """The provider refuses this request whenever it is sent."""

    public = "The provider refused the request."


class AccountUnusable(LLMFailure):
    """No request could be made for the account: nobody knows its provider, or its settings cannot be sent."""

    public = "No request can be made with the account's settings."


class ToolsUnsupported(LLMFailure):
    """The model takes no requests with tools."""

    public = "The model cannot call tools."


class EmptyResponse(LLMFailure):
    """The model answered with nothing, and with nothing again when it was told so."""

    public = "The model gave an empty answer."


class AnswerTooLarge(LLMFailure):
    """The answer has more bytes than ``llm.maxAnswerBytes``; the rest of it was not read."""

    public = "The provider's answer is larger than the limit."


class NoAccount(LLMFailure):
    """There is no account that could answer on this platform (docs/decisions.md: demo model)."""

    public = "No model account is configured for this platform."


class CircuitOpen(Suspension, LLMFailure):
    """The provider failed so often in a row that it is left alone for ``retry_after``; no request was sent."""

    public = "The provider fails at present and is left alone for a while."
    reason = WaitReason.PROVIDER
    retry_after = timedelta()


class LimiterBusy(LLMFailure):
    """Our own limit on an account left no room for this call in time; no request was sent."""

    public = "The account is busy at present."
    retryable = True


class RequestTooLarge(LLMFailure):
    """The request is larger than an account may send in a whole minute, so that waiting for room is pointless."""

    public = "The request is larger than the account's limit per minute."


class BudgetExceeded(Suspension, LLMFailure):
    """The budget is used up, or reserved by calls under way; the message names which."""

    public = "The budget is used up."
    reason = WaitReason.BUDGET


class AccountsExhausted(Suspension, LLMFailure):
    """Every account is limited: the job waits until the first of them may be asked again (docs/decisions.md: retry)."""

    public = "All accounts are temporarily unavailable."
    reason = WaitReason.ACCOUNT


PASSING = frozenset(
    kind.__name__ for kind in (RateLimited, QuotaExhausted, ProviderUnavailable, ModelTimeout, LimiterBusy)
)
"""Failures of a provider or an account that pass without a change by an operator, by the names of their classes."""
