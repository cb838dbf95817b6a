"""Records of model calls: the request, the answer and the cost.

See docs/invariants.md: no answer bought twice.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, LargeBinary, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.llm.prompts import CallPurpose, Usage


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
