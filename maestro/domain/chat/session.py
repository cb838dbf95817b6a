"""Sessions of the #maestro chat: who reads sees the posts of the open one only (docs/decisions.md: chat sessions)."""

from datetime import datetime

from sqlmodel import Field, Index, SQLModel, text

from maestro.domain.columns import UtcDateTime
from maestro.domain.values import View


class ChatSession(SQLModel, table=True):
    """One session; ``ended_at`` is None while it is open, and at most one is."""

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_open", "id", sqlite_where=text("ended_at IS NULL")),)

    id: str = Field(primary_key=True)
    started_at: datetime = Field(sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class SessionView(View):
    """The open session and how many posts it has; empty and null while none is open."""

    id: str
    started_at: datetime | None
    posts: int


def session_view(session: ChatSession | None, posts: int) -> SessionView:
    """Show the open session, if one is."""
    if session is None:
        return SessionView(id="", started_at=None, posts=0)
    return SessionView(id=session.id, started_at=session.started_at, posts=posts)
