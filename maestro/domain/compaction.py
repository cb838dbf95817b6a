"""Compaction: when a conversation grows too long for its model, what goes, and what is kept of it (decision 5)."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class Compaction(SQLModel, table=True):
    """What one compaction left behind; counts are messages, ``tokens_saved`` is estimated like every budget."""

    __tablename__ = "compactions"

    id: int | None = Field(default=None, primary_key=True)
    conversation_id: int = Field(foreign_key="conversations.id", index=True)
    agent_id: int = Field(foreign_key="agents.id")
    summary: str
    messages_before: int
    messages_after: int
    tokens_saved: int
    created_at: datetime = Field(sa_type=UtcDateTime)
