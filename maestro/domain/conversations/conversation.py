"""Conversations and their messages."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from sqlmodel import Field, Index, SQLModel, text

from maestro.domain.columns import UtcDateTime, text_of
from maestro.domain.llm.prompts import Role
from maestro.domain.messages import Address

OUTLINED = ("superseded", "role", "token_estimate", "inbox_id", "plain_chars")
"""The columns that say what a prompt has to know of a message whose text it shows as it is stored."""


class ConversationStatus(StrEnum):
    """A closed conversation is kept, and the next message opens another."""

    ACTIVE = "active"
    CLOSED = "closed"


class Conversation(SQLModel, table=True):
    """What an agent and a channel, or a user of it, said to each other; the counters are sums of the rows.

    ``closed_by_inbox_id`` is the ``/new`` that ended it: what had come in before still belongs here.
    """

    __tablename__ = "conversations"
    __table_args__ = (
        Index(
            "ux_conversations_active_key",
            "key",
            unique=True,
            sqlite_where=text("status = 'active'"),
            postgresql_where=text("status = 'active'"),
        ),
        Index("ix_conversations_key", "key"),
        Index("ix_conversations_channel", "platform", "account", "channel"),
        Index("ix_conversations_last", "last_message_at", "id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    key: str
    agent_id: int = Field(foreign_key="agents.id", index=True)
    platform: str
    account: str
    channel: str
    thread: str = ""
    user_id: str
    user_name: str = ""
    status: ConversationStatus = Field(default=ConversationStatus.ACTIVE, sa_type=text_of(ConversationStatus))
    closed_by_inbox_id: int | None = Field(default=None, foreign_key="inbox.id")
    total_tokens_estimate: int = 0
    message_count: int = 0
    started_at: datetime = Field(sa_type=UtcDateTime)
    last_message_at: datetime = Field(sa_type=UtcDateTime)

    def key_in(self, channel: str) -> str:
        """Return the key it has in another channel of its account."""
        parts = self.key.split("/")
        return "/".join((*parts[:3], _quoted(channel), *parts[4:]))


class Said(SQLModel):
    """What a message is, in the conversation or in the archive; ``superseded`` by the answer of a restarted job.

    ``agent_id`` is the agent that said it where it is another one than the conversation's own: a delegate.
    ``has_files`` says whether files came with it.
    """

    id: int | None = Field(default=None, primary_key=True)
    conversation_id: int = Field(foreign_key="conversations.id")
    role: Role = Field(sa_type=text_of(Role))
    content: str
    token_estimate: int
    inbox_id: int | None = Field(default=None, foreign_key="inbox.id", unique=True)
    job_id: str = Field(foreign_key="queue.id")
    agent_id: int | None = None
    superseded: bool = False
    has_files: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)


class Message(Said, table=True):
    """One turn; a user's is keyed by its inbox row, an assistant's by its job, so neither can be recorded twice.

    Ids are never used again: a stored prompt names a message by its id for as long as the prompt is kept.
    ``plain_chars`` is what ``history.plain_chars`` says of it, None where nobody asked: whoever changes that rule sets
    the column to None, in the migration of that release.
    """

    __tablename__ = "messages"
    __table_args__ = (
        Index(
            "ux_messages_answer_of_job",
            "job_id",
            unique=True,
            sqlite_where=text("role = 'assistant'"),
            postgresql_where=text("role = 'assistant'"),
        ),
        # What a prompt has to know of most messages, so that they need not be read.
        Index("ix_messages_conversation", "conversation_id", "id", *OUTLINED),
        {"sqlite_autoincrement": True},
    )

    plain_chars: int | None = None


class Line(NamedTuple):
    """A message as a prompt needs it.

    Where ``plain_chars`` is given, the prompt shows the text just as it is stored, with so many characters; then
    ``content`` and ``job_id`` are left out.
    """

    id: int
    role: Role
    content: str
    token_estimate: int
    inbox_id: int | None
    job_id: str
    agent_id: int | None
    has_files: bool
    plain_chars: int | None = None


class ArchivedMessage(Said, table=True):
    """A turn that a compaction took out of the conversation: people still read it, models do not.

    See docs/decisions.md: retention.
    """

    __tablename__ = "messages_archive"
    __table_args__ = (Index("ix_messages_archive_conversation", "conversation_id", "id"),)


def conversation_key(agent_id: int, address: Address, user_id: str | None) -> str:
    """Name the conversation: agent, platform, account, channel, thread, and the user where the binding keys by user."""
    parts = (str(agent_id), address.platform, address.account, address.channel, address.thread, user_id or "")
    return "/".join(_quoted(part) for part in parts)


def _quoted(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")
