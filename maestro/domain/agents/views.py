"""Views of agents, versions and bindings for operators, used by the API and the command line."""

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
    """An agent in a list; an empty ``model`` means the provider account's, ``updatedAt`` is the last edit's time."""

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
    """A binding of a channel to an agent; a ``configured`` one is controlled by the configuration file."""

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
    """A page of bindings, oldest first; ``next`` is the cursor of the next page, null on the last."""

    items: tuple[Binding, ...]
    next: str | None


class AgentDetail(AgentFields, AgentSummary):
    """An agent with its editable fields and its bindings; a null field means the common setting."""

    created_at: datetime
    channels: tuple[Binding, ...]


class AgentPage(View):
    """A page of agents by slug; ``next`` is the cursor of the next page, null on the last."""

    items: tuple[AgentSummary, ...]
    next: str | None


class VersionSummary(View):
    """An edit of an agent: its author, time and reason, and the changed fields (all fields for the first version)."""

    version: int
    at: datetime
    actor: str
    reason: str
    changed: tuple[str, ...]


class VersionPage(View):
    """A page of an agent's edits, newest first; ``next`` is the cursor of the next page, null on the last."""

    items: tuple[VersionSummary, ...]
    next: str | None


class VersionDetail(View):
    """An agent at a version, with the changes since version ``against``; null compares with an empty agent."""

    version: int
    at: datetime
    actor: str
    reason: str
    against: int | None
    changes: tuple[FieldChange, ...]
    agent: AgentFields


def agent_page(agents: Sequence[Agent], cursor: str | None, limit: int) -> AgentPage:
    """Build a page of up to ``limit`` agents; ``agents`` are sorted by slug, the cursor is a page's last slug."""
    following = [agent for agent in agents if cursor is None or agent.slug > cursor]
    page = tuple(map(AgentSummary.model_validate, following[:limit]))
    return AgentPage(items=page, next=page[-1].slug if len(following) > limit else None)


def agent_detail(agent: Agent, fields: AgentFields, channels: Sequence[Binding]) -> AgentDetail:
    """Build the detailed view of an agent."""
    # No validation: an earlier release may have accepted values that this one rejects.
    columns = {
        name: getattr(agent, name) for name in ("id", "slug", "version", "updated_at", "configured", "created_at")
    }
    return AgentDetail.model_construct(**{**columns, **dict(fields), "channels": tuple(channels)})


def binding_view(binding: AgentChannel, fields: BindingFields, agent: str) -> Binding:
    """Build the view of a binding; ``agent`` is the slug of its agent."""
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
    """Build a page of up to ``limit`` versions, newest first; one more, if given, is the base for the last one."""
    items = tuple(
        _summary(version, before) for version, before in zip(versions[:limit], [*versions[1:], None], strict=False)
    )
    return VersionPage(items=items, next=str(items[-1].version) if len(versions) > limit else None)


def version_detail(version: AgentVersion, against: AgentVersion | None) -> VersionDetail:
    """Build the view of a version, with its differences from version ``against``."""
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
