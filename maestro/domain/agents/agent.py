"""Agents, and which channel is bound to which."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of

CONDUCTOR = "conductor"


class AgentStatus(StrEnum):
    """Only an active agent answers."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"


class Permission(StrEnum):
    """What users may do in a bound channel (docs/decisions.md: access)."""

    FULL = "full"
    READ_ONLY = "read_only"
    NOTIFY_ONLY = "notify_only"


class BusyMode(StrEnum):
    """What becomes of a message that comes while an earlier one of its lane is not answered yet.

    See docs/decisions.md: busy agents.
    """

    QUEUE = "queue"
    COLLECT = "collect"
    INTERRUPT = "interrupt"


class MemoryScope(StrEnum):
    """Where an agent remembers what it learned: everywhere, or only in the channel it learned it in.

    See docs/decisions.md: memory scope.
    """

    AGENT = "agent"
    CONVERSATION = "conversation"


class Agent(SQLModel, table=True):
    """Who answers; ``model`` is ``provider/model``, empty for the account's own.

    ``fallbacks`` are the models to try after it, ``tools`` the names it may call, ``skills`` the slugs of the skills it
    may be given, ``allow_users`` the people (``platform:userId``) who may talk to it, all separated by blanks; the last
    three are None for what everybody has: the default tools, every skill, everyone. ``quirks`` is a JSON list of
    sentences. ``memory_scope`` is None for that of the settings. ``version`` counts its edits. ``configured`` says that
    the configuration names it, ``entry`` is the digest of what that said last: what it no longer names is archived.
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
    memory_scope: MemoryScope | None = Field(default=None, sa_type=text_of(MemoryScope))
    client_id: int | None = None
    daily_budget_usd: float | None = None
    status: AgentStatus = Field(default=AgentStatus.ACTIVE, sa_type=text_of(AgentStatus))
    configured: bool = False
    entry: str = ""
    version: int = 1
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)

    @property
    def tool_names(self) -> tuple[str, ...] | None:
        """The tools it may call, None for those that everybody may."""
        return tuple(self.tools.split()) if self.tools is not None else None

    @property
    def skill_slugs(self) -> frozenset[str] | None:
        """The skills it may be given, None for every skill."""
        return frozenset(self.skills.split()) if self.skills is not None else None


class AgentVersion(SQLModel, table=True):
    """What an agent was after one edit: ``snapshot`` is the JSON of what people can edit, ``actor`` who did it."""

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
    """A channel bound to an agent; ``key_by_user`` gives each user a conversation and a lane of their own.

    ``busy`` is None for the mode of the settings; ``allow_bots`` lets other bots talk here.
    ``configured`` says that the configuration binds it: what it no longer binds is free again.
    """

    __tablename__ = "agent_channels"
    __table_args__ = (UniqueConstraint("platform", "account", "channel"),)

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id", index=True)
    platform: str
    account: str
    channel: str
    permission: Permission = Field(default=Permission.FULL, sa_type=text_of(Permission))
    key_by_user: bool = False
    busy: BusyMode | None = Field(default=None, sa_type=text_of(BusyMode))
    allow_bots: bool = False
    client_id: int | None = None
    configured: bool = False


def payer_of(agent: Agent, binding: AgentChannel | None) -> int | None:
    """Return the client who pays for what an agent answers in a channel: the channel's, else the agent's, if any."""
    return (binding.client_id if binding is not None else None) or agent.client_id


def keeps_apart(agent: Agent, default_scope: MemoryScope) -> bool:
    """Say whether an agent remembers things only in the conversation in which it learned them.

    See docs/decisions.md: memory scope.
    """
    return (agent.memory_scope or default_scope) is MemoryScope.CONVERSATION


def mode_of(binding: AgentChannel | None, default: BusyMode) -> BusyMode:
    """Return the mode of a channel: its binding's own, else that of the settings."""
    return (binding.busy if binding is not None else None) or default
