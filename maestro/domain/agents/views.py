"""Agents, their versions and their channels as operators see them, on the API and on the command line alike."""

from collections.abc import Sequence
from datetime import datetime

from maestro.domain.agents.agent import (
    Agent,
    AgentChannel,
    AgentStatus,
    AgentVersion,
    BusyMode,
    Permission,
)
from maestro.domain.agents.edits import AgentFields, BindingFields
from maestro.domain.agents.versions import FieldChange, diff, fields_at
from maestro.domain.values import View


class AgentSummary(View):
    """An agent; an empty ``model`` is the one of the account, ``updatedAt`` is when it was edited last."""

    id: int
    slug: str
    name: str
    role: str
    description: str
    model: str
    status: AgentStatus
    version: int
    updated_at: datetime
    configured: bool


class Binding(View):
    """A channel that belongs to an agent; of one that is ``configured`` the configuration decides."""

    id: int
    agent: str
    platform: str
    account: str
    channel: str
    permission: Permission
    key_by_user: bool
    busy: BusyMode | None
    allow_bots: bool
    client: str
    configured: bool


class BindingPage(View):
    """Bound channels, the oldest first; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[Binding, ...]
    next: str | None


class AgentDetail(AgentFields, AgentSummary):
    """An agent with all its fields that can be edited, and its channels; null stands for the common setting."""

    created_at: datetime
    channels: tuple[Binding, ...]


class AgentPage(View):
    """Agents by slug; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[AgentSummary, ...]
    next: str | None


class VersionSummary(View):
    """One edit of an agent: who made it, when and why, and which fields it changed; all of them in the first."""

    version: int
    at: datetime
    actor: str
    reason: str
    changed: tuple[str, ...]


class VersionPage(View):
    """The edits of an agent, newest first; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[VersionSummary, ...]
    next: str | None


class VersionDetail(View):
    """An agent as it was after an edit, and what was different in version ``against``, null for nothing at all."""

    version: int
    at: datetime
    actor: str
    reason: str
    against: int | None
    changes: tuple[FieldChange, ...]
    agent: AgentFields


def agent_page(agents: Sequence[Agent], cursor: str | None, limit: int) -> AgentPage:
    """Show up to ``limit`` of all agents, which are sorted by slug; the cursor is the last slug of the page before."""
    following = [agent for agent in agents if cursor is None or agent.slug > cursor]
    page = tuple(map(AgentSummary.model_validate, following[:limit]))
    return AgentPage(items=page, next=page[-1].slug if len(following) > limit else None)


def agent_detail(agent: Agent, fields: AgentFields, channels: Sequence[Binding]) -> AgentDetail:
    """Show everything about an agent."""
    # Without validation, as the fields were made: an earlier release may have accepted them.
    columns = {
        name: getattr(agent, name) for name in ("id", "slug", "version", "updated_at", "configured", "created_at")
    }
    return AgentDetail.model_construct(**{**columns, **dict(fields), "channels": tuple(channels)})


def binding_view(binding: AgentChannel, fields: BindingFields, agent: str) -> Binding:
    """Show a bound channel; ``agent`` is the slug of whose it is."""
    return Binding(
        **fields.model_dump(by_alias=False),
        id=binding.id or 0,
        agent=agent,
        platform=binding.platform,
        account=binding.account,
        channel=binding.channel,
        configured=binding.configured,
    )


def version_page(versions: Sequence[AgentVersion], limit: int) -> VersionPage:
    """Show up to ``limit`` versions, newest first; one more than that says what the last of them changed."""
    items = tuple(
        _summary(version, before) for version, before in zip(versions[:limit], [*versions[1:], None], strict=False)
    )
    return VersionPage(items=items, next=str(items[-1].version) if len(versions) > limit else None)


def version_detail(version: AgentVersion, against: AgentVersion | None) -> VersionDetail:
    """Show a version beside another one."""
    fields = fields_at(version)
    return VersionDetail(
        version=version.version,
        at=version.at,
        actor=version.actor,
        reason=version.reason,
        against=against.version if against is not None else None,
        changes=diff(fields_at(against) if against is not None else None, fields),
        agent=fields,
    )


def _summary(version: AgentVersion, before: AgentVersion | None) -> VersionSummary:
    changes = version_detail(version, before).changes
    return VersionSummary(
        version=version.version,
        at=version.at,
        actor=version.actor,
        reason=version.reason,
        changed=tuple(change.field for change in changes),
    )
