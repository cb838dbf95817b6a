"""What is left of a conversation that was deleted: that it was, and by whom (docs/decisions.md: retention)."""

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class RemovedConversation(SQLModel, table=True):
    """A conversation that is gone; its number is never given to another."""

    __tablename__ = "removed_conversations"

    id: int = Field(primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime)
    actor: str


class DiscardedFile(SQLModel, table=True):
    """A file or folder that nobody refers to any more, by its path in the data folder, until it is really gone."""

    __tablename__ = "discarded_files"

    path: str = Field(primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime)


@dataclass(frozen=True)
class RemovalPlan:
    """What was found out before a conversation is deleted, because it takes long and nobody should wait for it.

    ``jobs`` are those of the conversation, ``parts`` the digests of kept texts that only they referred to ``at`` that
    time. The marks are the newest prompt and model call that were looked at.
    """

    conversation_id: int
    jobs: frozenset[str]
    parts: frozenset[str]
    marks: tuple[int, int]
    at: datetime
