"""Records of model calls: the request, the answer and its cost, and why another model or account answered.

See docs/invariants.md: no answer bought twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, LargeBinary, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.llm.accounts import AccountChoice, AccountModel, AccountStatus, ModelAccount, can_serve
from maestro.domain.llm.errors import AuthenticationFailed
from maestro.domain.llm.prompts import CallPurpose, Usage
from maestro.domain.values import View


class CallState(StrEnum):
    """The state of a model call.

    ``sent`` is committed before the request leaves. ``interrupted`` means that the call was cancelled or the calling
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
    """One attempt at one model call, which is one request to one account.

    ``request`` is the digest of the stored request. ``tool_calls`` is the JSON of the requested tool calls, empty
    without any. ``cost_usd`` is None if unknown. The prompt contained the posts of #maestro after ``chat_after`` up to
    ``chat_upto``.
    """

    __tablename__ = "llm_calls"
    __table_args__ = (UniqueConstraint("job_id", "purpose", "number", "attempt"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    purpose: CallPurpose = Field(default=CallPurpose.ANSWER, sa_type=text_of(CallPurpose))
    number: int
    attempt: int
    state: CallState = Field(sa_type=text_of(CallState))
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
    """The prompt of a job, stored as references: parts by digest, history by message id.

    ``layers`` is the JSON of the layers of the system message, in order.
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
    """The ``model`` and ``account`` that answered, the ``wanted`` model (empty for any), and the ``reason``."""

    wanted: str
    model: str
    account: str
    reason: str


@dataclass(frozen=True)
class FirstChoice:
    """The first choice of a model call: a model, empty for the accounts' defaults, and the accounts.

    ``cheaper`` is the fallback model for a used-up budget, ``limits`` are the cool-downs at the start of the call.
    """

    model: str
    accounts: Sequence[ModelAccount]
    limits: Mapping[AccountModel, datetime]
    cheaper: str = ""


def final_answer(calls: Sequence[LLMCall]) -> LLMCall | None:
    """Return the last call with an answer for the user, None without one."""
    answers = (call for call in reversed(calls) if call.purpose is CallPurpose.ANSWER)
    return next((call for call in answers if call.state is CallState.ANSWERED), None)


def substitution(calls: Sequence[LLMCall], first: FirstChoice) -> Substitution | None:
    """Return the substitution of the last answer, None if the first choice answered.

    It is also None if the answering account is unknown: the demo model answered, or the accounts have changed.
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
