"""Sessions of the #maestro chat: who reads sees the posts of the open one only (decision 12)."""

from datetime import datetime

from sqlmodel import Field, Index, SQLModel, text

from maestro.domain.columns import UtcDateTime


class ChatSession(SQLModel, table=True):
    """One session; ``ended_at`` is None while it is open, and at most one is."""

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_open", "id", sqlite_where=text("ended_at IS NULL")),)

    id: str = Field(primary_key=True)
    started_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
