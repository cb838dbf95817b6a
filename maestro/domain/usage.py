"""What model calls took and cost, kept for the bill even when a conversation is deleted."""

from datetime import datetime

from sqlmodel import Field, Index, SQLModel

from maestro.domain.calls import CallState
from maestro.domain.columns import UtcDateTime, text_of

VOICE = "voice"
"""The purpose of a transcription, which is no call for a text."""


class UsageRow(SQLModel, table=True):
    """A row of ``usage_log``: one request to one account, however it ended.

    ``purpose`` is that of the call, or ``VOICE``. ``cost_usd`` is None when the price is unknown, which is not the same
    as free; of an interrupted call it is an estimate. Tokens are 0 where nobody said. Names stand here as they were.
    """

    __tablename__ = "usage_log"
    __table_args__ = (Index("ix_usage_log_at", "at"), Index("ix_usage_log_job_id", "job_id", "number", "attempt"))

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime)
    job_id: str
    purpose: str
    number: int
    attempt: int
    agent_id: int | None = None
    client_id: int | None = None
    conversation_id: int | None = None
    provider: str
    model: str
    account: str
    state: CallState = Field(sa_type=text_of(CallState))
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    duration_ms: int | None = None
    error: str = ""
