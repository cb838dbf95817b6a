"""The #maestro chat: one channel for agents and people, one post a row."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel import Field, Index, SQLModel

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.quoting import NAME_CHARS, quoted

CHANNEL = "#maestro"
HUMAN = "@human"
"""The author of what people post, whoever they are."""
ARCHITECT = "architect"
"""The role that takes no part in the chat."""
RESERVED = frozenset({"human", ARCHITECT})
"""Names that no agent can speak by: people's own, and one that is kept for later."""
CODER = "coder"
"""The role whose agents are told how to use the chat."""


class ChatMessage(SQLModel, table=True):
    """One post, as it was stored: after redaction and truncation; ``ts`` is RFC 3339 in UTC.

    Ids rise across sessions and restarts and are never used again.
    """

    __tablename__ = "chat"
    __table_args__ = (Index("ix_chat_session", "session_id", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    session_id: str
    ts: str
    author: str
    text: str


class ChatCursor(SQLModel, table=True):
    """Up to where an agent has read, over all sessions.

    ``offered_id`` is the newPointer that its last call over MCP returned: its next call says that it read that far.
    """

    __tablename__ = "chat_cursor"

    agent_id: str = Field(primary_key=True)
    last_id: int = 0
    offered_id: int = 0


class ChatReminder(SQLModel, table=True):
    """That the last answer of an agent in a job called nothing but the chat: the next call reminds it."""

    __tablename__ = "chat_reminders"

    agent_id: str = Field(primary_key=True)
    job_id: str = Field(primary_key=True)


@dataclass(frozen=True, slots=True)
class Post:
    """One post as it is read: many are read at once."""

    id: int
    ts: str
    author: str
    text: str


@dataclass(frozen=True, slots=True)
class Unread:
    """What an agent has not read, oldest first, and ``after`` which id."""

    messages: Sequence[Post]
    after: int

    @property
    def new_pointer(self) -> int:
        """The highest id, the cursor where there is none."""
        return self.messages[-1].id if self.messages else self.after


def author_of(slug: str) -> str:
    """Return the author that an agent posts as."""
    return f"@{slug}"


def takes_part(agent: Agent) -> bool:
    """Say whether an agent posts and reads: every active one but architects (docs/decisions.md: agent chat)."""
    return agent.status is AgentStatus.ACTIVE and hears(agent.slug, agent.role)


def hears(slug: str, role: str) -> bool:
    """Say whether an agent of this name and role is told what others post; nobody may have a reserved name."""
    return bool(slug) and role != ARCHITECT and slug not in RESERVED


def author_problem(author: str, agent: Agent | None) -> str:
    """Return why nobody may post as this author, and nothing when somebody may; ``agent`` is whose name it has."""
    if author == HUMAN:
        return ""
    if agent is None or author != author_of(agent.slug):
        return f"{quoted(author, NAME_CHARS)} is no author: posts are from {HUMAN} or an agent, as @coder-1"
    if not takes_part(agent):
        return f"{author} takes no part in {CHANNEL}: architects, agents that are not active and reserved names do not"
    return ""
