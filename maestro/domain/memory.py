"""What an agent remembers beyond a conversation: facts it learned (decisions 6 and 8)."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of


class FactCategory(StrEnum):
    """What a fact is about; a sticky one is told to the model every time."""

    STICKY = "sticky"
    USER_PREFERENCE = "user_preference"
    PROJECT_CONTEXT = "project_context"
    LEARNED_PATTERN = "learned_pattern"
    IMPORTANT_EVENT = "important_event"


class MemoryFact(SQLModel, table=True):
    """One fact of one agent; ``confidence`` is between 0 and 1, access is being told to a model.

    ``place`` is the key of the conversation in which alone it is remembered, empty for everywhere.
    """

    __tablename__ = "memory_facts"
    __table_args__ = (Index("ix_memory_facts_agent", "agent_id", "category"),)

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id")
    category: FactCategory = Field(sa_type=text_of(FactCategory))
    content: str
    place: str = ""
    confidence: float
    source_conversation_id: int | None = Field(default=None, foreign_key="conversations.id", index=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    last_accessed: datetime | None = Field(default=None, sa_type=UtcDateTime)
    access_count: int = 0


class MemoryState(SQLModel, table=True):
    """What an agent keeps under a key, the newest value only; ``place`` as for a fact."""

    __tablename__ = "memory_state"
    __table_args__ = (UniqueConstraint("agent_id", "place", "key"),)

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id")
    place: str = ""
    key: str
    value: str
    updated_at: datetime = Field(sa_type=UtcDateTime)
