"""Tables of agents, their versions, the bindings of channels, and the tokens of external agents."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, enum_column_type
from maestro.domain.values import DisplayName, Page, View

CONDUCTOR = "conductor"

BEARER_PREFIX = "mst_"
"""The prefix of every agent token, by which operators and secret scanners recognise a token."""
TOKEN_BYTES = 32
MOST_TOKENS = 100
"""The most tokens of one agent that are not revoked; a request for a further token is refused."""
USE_RECORDED_EVERY = timedelta(minutes=1)


class AgentStatus(StrEnum):
    """The state of an agent; only an active agent answers."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"


class Permission(StrEnum):
    """The rights of users in a bound channel (docs/decisions.md: access)."""

    FULL = "full"
    READ_ONLY = "read_only"
    NOTIFY_ONLY = "notify_only"


class BusyMode(StrEnum):
    """What happens to a message while its lane (queue) is busy with another (docs/decisions.md: busy agents)."""

    QUEUE = "queue"
    COLLECT = "collect"
    INTERRUPT = "interrupt"


class MemoryScope(StrEnum):
    """Where an agent recalls a fact: everywhere, or in the fact's conversation (docs/decisions.md: memory scope)."""

    AGENT = "agent"
    CONVERSATION = "conversation"


class Agent(SQLModel, table=True):
    """An agent: a persona that answers. ``model`` is ``provider/model``, empty for the provider account's model.

    ``fallbacks`` (models to try after ``model``), ``tools``, ``skills`` (slugs) and ``allow_users``
    (``platform:userId``) are lists separated by blanks. None in ``tools``, ``skills`` or ``allow_users`` means the
    default tools, every skill, or every user. ``quirks`` is a JSON list of sentences on the agent's speech.
    ``memory_scope`` is None for the scope in the settings. ``version`` counts the edits. ``configured`` is true if the
    configuration file defines the agent, and ``entry`` is the digest of that entry. When the file no longer defines the
    agent, the agent is archived.
    """

    __tablename__ = "agents"
    __table_args__ = (Index("ix_agents_routing", "status", "id", "slug", "name", "role"),)

    id: int | None = Field(default=None, primary_key=True)
    slug: str = Field(unique=True)
    name: str
    role: str = "assistant"
    description: str = ""
    voice: str = ""
    language: str = ""
    quirks: str = "[]"
    system_prompt: str = ""
    model: str = ""
    fallbacks: str = ""
    tools: str | None = None
    skills: str | None = None
    allow_users: str | None = None
    memory_scope: MemoryScope | None = Field(default=None, sa_type=enum_column_type(MemoryScope))
    client_id: int | None = None
    daily_budget_usd: float | None = None
    status: AgentStatus = Field(default=AgentStatus.ACTIVE, sa_type=enum_column_type(AgentStatus))
    configured: bool = False
    entry: str = ""
    version: int = 1
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)

    @property
    def tool_names(self) -> tuple[str, ...] | None:
        """The names of the tools that the agent may call, None for the default tools."""
        return tuple(self.tools.split()) if self.tools is not None else None

    @property
    def skill_slugs(self) -> frozenset[str] | None:
        """The slugs of the skills that the agent may get, None for every skill."""
        return frozenset(self.skills.split()) if self.skills is not None else None


class AgentVersion(SQLModel, table=True):
    """An agent's state after one edit: ``snapshot`` is the JSON of its editable fields, ``actor`` the editor."""

    __tablename__ = "agent_versions"
    __table_args__ = (UniqueConstraint("agent_id", "version"),)

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id")
    version: int
    at: datetime = Field(sa_type=UtcDateTime)
    actor: str
    reason: str = ""
    snapshot: str


class AgentChannel(SQLModel, table=True):
    """A binding of a channel to an agent; ``key_by_user`` gives each user a separate conversation and lane.

    ``busy`` is None for the mode in the settings; ``allow_bots`` lets other bots talk in the channel. ``configured`` is
    true if the configuration file defines the binding; when the file no longer does, the binding is removed.
    """

    __tablename__ = "agent_channels"
    __table_args__ = (UniqueConstraint("platform", "account", "channel"),)

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id", index=True)
    platform: str
    account: str
    channel: str
    permission: Permission = Field(default=Permission.FULL, sa_type=enum_column_type(Permission))
    key_by_user: bool = False
    busy: BusyMode | None = Field(default=None, sa_type=enum_column_type(BusyMode))
    allow_bots: bool = False
    client_id: int | None = None
    configured: bool = False


def paying_client_id(agent: Agent, binding: AgentChannel | None) -> int | None:
    """Return the id of the client that pays for answers in a channel: the binding's, else the agent's, or None."""
    return (binding.client_id if binding is not None else None) or agent.client_id


def recalls_per_conversation(agent: Agent, default_scope: MemoryScope) -> bool:
    """Return whether an agent recalls a fact only in the fact's conversation (docs/decisions.md: memory scope)."""
    return (agent.memory_scope or default_scope) is MemoryScope.CONVERSATION


def channel_busy_mode(binding: AgentChannel | None, default: BusyMode) -> BusyMode:
    """Return the busy mode of a channel: that of its binding, else the default of the settings."""
    return (binding.busy if binding is not None else None) or default


class AgentToken(SQLModel, table=True):
    """A token of an external agent: its SHA-256 digest, and its last four characters, by which operators know it."""

    __tablename__ = "agent_tokens"

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id", index=True)
    name: str = ""
    digest: str = Field(unique=True)
    ending: str
    created_by: str
    created_at: datetime = Field(sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


@dataclass(frozen=True)
class TokenHolder:
    """An agent that presented a valid token, with that token."""

    token: AgentToken
    agent: Agent


class NewToken(View):
    """A request to create a token of an agent; ``name`` tells operators where the token is used."""

    name: DisplayName = ""


class TokenView(View):
    """A token of an agent, without its text; ``lastUsedAt`` is updated at most once a minute."""

    id: int
    name: str
    ending: str
    created_by: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class IssuedToken(TokenView):
    """A new token with its full text, which is shown only once."""

    token: str


class TokenPage(Page[TokenView]):
    """A page of an agent's tokens, newest first."""


def token_digest(token: str) -> str:
    """Return the digest under which a token is stored; a token has 256 random bits, so a salt adds nothing."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
