"""Agents, and which channel is bound to which."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of

CONDUCTOR = "conductor"


class AgentStatus(StrEnum):
    """Only an active agent answers."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"


class Permission(StrEnum):
    """What users may do in a bound channel (decision 3)."""

    FULL = "full"
    READ_ONLY = "read_only"
    NOTIFY_ONLY = "notify_only"


class Agent(SQLModel, table=True):
    """Who answers; ``model`` is ``provider/model``, empty for the account's own.

    ``fallbacks`` are the models to try after it, ``tools`` the names it may call, both separated by blanks; ``tools``
    is None for those that everybody may call. ``configured`` says that the configuration names it: what it no longer
    names is archived.
    """

    __tablename__ = "agents"

    id: int | None = Field(default=None, primary_key=True)
    slug: str = Field(unique=True)
    name: str
    role: str = "assistant"
    description: str = ""
    system_prompt: str = ""
    model: str = ""
    fallbacks: str = ""
    tools: str | None = None
    client_id: int | None = None
    daily_budget_usd: float | None = None
    status: AgentStatus = Field(default=AgentStatus.ACTIVE, sa_type=text_of(AgentStatus))
    configured: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)

    @property
    def tool_names(self) -> tuple[str, ...] | None:
        """The tools it may call, None for those that everybody may."""
        return tuple(self.tools.split()) if self.tools is not None else None


class AgentChannel(SQLModel, table=True):
    """A channel bound to an agent; ``key_by_user`` gives each user a conversation and a lane of their own.

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
    client_id: int | None = None
    configured: bool = False
