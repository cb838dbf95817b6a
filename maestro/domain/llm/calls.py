"""Model calls: the classes of their failures, and their records (docs/invariants.md: no answer bought twice)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlmodel import Field, LargeBinary, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, enum_column_type
from maestro.domain.errors import FailureSource, MaestroError, Suspension, WaitReason
from maestro.domain.llm.accounts import AccountChoice, AccountModel, AccountStatus, ModelAccount, can_serve
from maestro.domain.llm.prompts import CallPurpose, Usage
from maestro.domain.values import View


@dataclass(frozen=True, slots=True)
class CallSite:
    """The destination of a model call: the provider, the account by its name, and the model."""

    provider: str
    account: str
    model: str


class LLMFailure(MaestroError):
    """The base of failed model calls; ``public`` and ``str`` contain no prompt, key or text of the provider.

    ``site`` is the destination of the call and ``status`` the HTTP status; None if no request was sent or no answer
    came. ``usage`` and ``cost_usd`` are those of an answer that cannot be used. ``instead`` is how the job waits if no
    attempt remains, because another account may be available later.
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
    """The provider refuses the request; a retry cannot succeed."""

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
    """The circuit breaker has paused calls to the provider for ``retry_after``; no request was sent."""

    public = "The provider fails at present, so calls to it are paused for a while."
    reason = WaitReason.PROVIDER
    retry_after = timedelta()


class LimiterBusy(LLMFailure):
    """The configured limits of an account left no room for the call in time; no request was sent."""

    public = "The account is busy at present."
    retryable = True


class RequestTooLarge(LLMFailure):
    """The request has more tokens than the account's limit per minute, so that waiting cannot help."""

    public = "The request is larger than the account's limit per minute."


class BudgetExceeded(Suspension, LLMFailure):
    """A budget is spent, or reserved for calls in progress; the message names the budget."""

    public = "The budget is used up."
    reason = WaitReason.BUDGET


class AccountsExhausted(Suspension, LLMFailure):
    """Every account is in a cool-down; the job waits until the first cool-down ends (docs/decisions.md: retry)."""

    public = "All accounts are temporarily unavailable."
    reason = WaitReason.ACCOUNT


PASSING = frozenset(
    kind.__name__ for kind in (RateLimited, QuotaExhausted, ProviderUnavailable, ModelTimeout, LimiterBusy)
)
"""The class names of temporary failures of a provider or account, which need no change by an operator."""


class CallState(StrEnum):
    """The state of a model call.

    ``sent`` is stored before the request is sent. ``interrupted`` means that the call was cancelled or the calling
    process died.
    """

    SENT = "sent"
    ANSWERED = "answered"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class CallEstimate:
    """The estimated tokens and cost of a call in progress; ``cost_usd`` is None if the price is unknown."""

    provider: str
    model: str
    input_tokens: int
    cost_usd: float | None
    account: str = ""


NO_TOKENS = Usage()


@dataclass(frozen=True)
class Expense:
    """The usage and cost of a call without an answer; ``cost_usd`` is None if price or usage is unknown."""

    usage: Usage = NO_TOKENS
    cost_usd: float | None = None
    duration_ms: int | None = None


class LLMCall(SQLModel, table=True):
    """One attempt at one model call: one request to one account.

    ``request`` is the digest of the stored request. ``tool_calls`` is the JSON of the requested tool calls, empty
    without any. ``cost_usd`` is None if unknown. The prompt contained the posts of #maestro after ``chat_after`` up to
    ``chat_upto``.
    """

    __tablename__ = "llm_calls"
    __table_args__ = (UniqueConstraint("job_id", "purpose", "number", "attempt"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    purpose: CallPurpose = Field(default=CallPurpose.ANSWER, sa_type=enum_column_type(CallPurpose))
    number: int
    attempt: int
    state: CallState = Field(sa_type=enum_column_type(CallState))
    request: str
    content: str = ""
    tool_calls: str = ""
    provider: str = ""
    model: str = ""
    account: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    finish_reason: str = ""
    chat_after: int = 0
    chat_upto: int = 0
    error: str = ""
    started_at: datetime = Field(sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    duration_ms: int | None = None


class Prompt(SQLModel, table=True):
    """The prompt of a job, stored as references: prompt parts by digest, earlier messages by message id.

    ``layers`` is the JSON of the layers (sections) of the system message, in order.
    """

    __tablename__ = "prompts"

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id", unique=True)
    turns: str
    layers: str = "[]"
    tokens: int
    created_at: datetime = Field(sa_type=UtcDateTime)


class PromptPart(SQLModel, table=True):
    """A compressed part of a prompt, stored once under the SHA-256 of its content."""

    __tablename__ = "prompt_parts"

    digest: str = Field(primary_key=True)
    body: bytes = Field(sa_type=LargeBinary)


class Substitution(View):
    """A substitute for the ``wanted`` model (empty: any): the ``model`` and ``account`` that answered, and why."""

    wanted: str
    model: str
    account: str
    reason: str


@dataclass(frozen=True)
class FirstChoice:
    """The model and the accounts that a call should use first; an empty model means the accounts' default models.

    ``cheaper`` is the fallback model for a used-up budget, ``limits`` are the cool-downs at the start of the call.
    """

    model: str
    accounts: Sequence[ModelAccount]
    limits: Mapping[AccountModel, datetime]
    cheaper: str = ""


def final_answer(calls: Sequence[LLMCall]) -> LLMCall | None:
    """Return the last model call that answered the user, None if no call did."""
    answers = (call for call in reversed(calls) if call.purpose is CallPurpose.ANSWER)
    return next((call for call in answers if call.state is CallState.ANSWERED), None)


def find_substitution(calls: Sequence[LLMCall], first: FirstChoice) -> Substitution | None:
    """Return which other model or account gave the last answer, None if the first choice answered.

    Also None if the answering account is unknown: the demo model answered, or the accounts have changed.
    """
    answer = final_answer(calls)
    if answer is None:
        return None
    accounts = [account for account in first.accounts if account.created_at <= answer.started_at]
    able = [account for account in accounts if not first.model or can_serve(account, first.model)]
    lowest = min((account.priority for account in able), default=0)
    choices = [
        AccountChoice(account, account.api_name(first.model) if first.model else account.model)
        for account in able
        if account.priority == lowest
    ]
    # A provider may name the release of the requested model in its answer, such as gpt-4o-2024-08-06 for gpt-4o.
    answered = any(
        answer.account == choice.account.name and answer.model.startswith(choice.model) for choice in choices
    )
    if answered or all(account.name != answer.account for account in accounts):
        return None
    reason = _get_reason(calls, answer, first, choices)
    return Substitution(wanted=first.model, model=answer.model, account=answer.account, reason=reason)


def _get_reason(calls: Sequence[LLMCall], answer: LLMCall, first: FirstChoice, choices: Sequence[AccountChoice]) -> str:
    """Return why none of the first choices answered, from the failed calls or the state of the accounts."""
    failures = [
        f"{call.account or call.model} failed with {call.error}"
        for call in calls
        if (call.purpose, call.number, call.state) == (answer.purpose, answer.number, CallState.FAILED)
    ]
    if failures:
        return ", ".join(dict.fromkeys(failures))
    if not choices:
        return f"no account serves {first.model}"
    reasons = [_unavailable_reason(choice, first.limits) for choice in choices]
    if all(reasons):
        return ", ".join(reasons)
    if first.cheaper and answer.model.startswith(first.cheaper.rpartition("/")[2]):
        return "a daily budget was used up, so budgets.fallbackModel answered"
    return "the first choice could not be called: its account was busy, or its circuit breaker was open"


def _unavailable_reason(choice: AccountChoice, limits: Mapping[AccountModel, datetime]) -> str:
    """Return why the account could not be called; empty if it is active and in no cool-down."""
    account = choice.account
    if account.status is AccountStatus.DISABLED:
        refused = account.last_error == AuthenticationFailed.__name__
        return f"{account.name} is disabled{': its key was refused' if refused else ''}"
    until = choice.cool_down_end(limits)
    return f"{account.name} was in cool-down until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
