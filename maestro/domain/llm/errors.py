"""Failures of model calls: one class for each action that a failure requires."""

from dataclasses import dataclass
from datetime import timedelta

from maestro.domain.errors import FailureSource, MaestroError, Suspension, WaitReason
from maestro.domain.llm.prompts import Usage


@dataclass(frozen=True, slots=True)
class CallSite:
    """The destination of a call: the provider, the account by its name, and the model."""

    provider: str
    account: str
    model: str


class LLMFailure(MaestroError):
    """The base of failed model calls; ``public`` and ``str`` contain no prompt, key or text of the provider.

    ``site`` is the destination of the call and ``status`` the HTTP status; None if no request was sent or no answer
    came. ``usage`` and ``cost_usd`` are those of an answer that cannot be used. ``instead`` is the suspension of the
    job if no attempt remains: another account may be available by then.
    """

    public = "The model call failed."
    site: CallSite | None = None
    status: int | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    instead: Suspension | None = None
    source = FailureSource.PROVIDER


class RateLimited(LLMFailure):
    """The provider limits requests; ``retry_after`` is the requested wait, None if the provider named none."""

    public = "The provider is limiting requests."
    retryable = True

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QuotaExhausted(LLMFailure):
    """The account has no credit or has reached its spending limit."""

    public = "The account's quota is used up."
    retryable = True


class AuthenticationFailed(LLMFailure):
    """The key is wrong, has expired or lacks a permission."""

    public = "The provider refused the account's key."


class ProviderUnavailable(LLMFailure):
    """The provider failed: an HTTP status 5xx, a connection reset, or an invalid body."""

    public = "The provider failed to answer."
    retryable = True


class ModelTimeout(LLMFailure):
    """No complete answer arrived before the deadline of the call."""

    public = "The provider did not answer in time."
    retryable = True


class ContextOverflow(LLMFailure):
    """The prompt is larger than the model's context window."""

    public = "The prompt does not fit the model's context window."


class BadRequest(LLMFailure):
    """The provider refuses this request; a retry cannot succeed."""

    public = "The provider refused the request."


class AccountUnusable(LLMFailure):
    """No request can be built for the account: its provider is unknown, or its settings cannot be sent."""

    public = "No request can be made with the account's settings."


class ToolsUnsupported(LLMFailure):
    """The model does not accept requests with tools."""

    public = "The model cannot call tools."


class EmptyResponse(LLMFailure):
    """The model gave an empty answer twice, the second time after a reminder."""

    public = "The model gave an empty answer."


class AnswerTooLarge(LLMFailure):
    """The answer has more bytes than ``llm.maxAnswerBytes``; the rest was not read."""

    public = "The provider's answer is larger than the limit."


class NoAccount(LLMFailure):
    """No account can answer on this platform (docs/decisions.md: demo model)."""

    public = "No model account is configured for this platform."


class CircuitOpen(Suspension, LLMFailure):
    """The circuit breaker stops calls to the provider for ``retry_after``; no request was sent."""

    public = "The provider fails at present, so calls to it are paused for a while."
    reason = WaitReason.PROVIDER
    retry_after = timedelta()


class LimiterBusy(LLMFailure):
    """The local limit of an account had no capacity for the call in time; no request was sent."""

    public = "The account is busy at present."
    retryable = True


class RequestTooLarge(LLMFailure):
    """The request exceeds the account's limit of tokens per minute, so that waiting cannot help."""

    public = "The request is larger than the account's limit per minute."


class BudgetExceeded(Suspension, LLMFailure):
    """A budget is used up, or reserved by calls in progress; the message names the budget."""

    public = "The budget is used up."
    reason = WaitReason.BUDGET


class AccountsExhausted(Suspension, LLMFailure):
    """Every account is in a cool-down; the job waits for the end of the first one (docs/decisions.md: retry)."""

    public = "All accounts are temporarily unavailable."
    reason = WaitReason.ACCOUNT


PASSING = frozenset(
    kind.__name__ for kind in (RateLimited, QuotaExhausted, ProviderUnavailable, ModelTimeout, LimiterBusy)
)
"""The class names of failures of a provider or account that pass without a change by an operator."""
