"""An agent as operators see it, on the API and on the command line alike."""

from collections.abc import Sequence

from maestro.domain.agents import Agent, AgentChannel, AgentStatus, Permission
from maestro.domain.views import View


class AgentSummary(View):
    """An agent; an empty ``model`` is the one of the account."""

    id: int
    slug: str
    name: str
    role: str
    description: str
    model: str
    status: AgentStatus


class Binding(View):
    """A channel that belongs to an agent."""

    platform: str
    account: str
    channel: str
    permission: Permission
    key_by_user: bool


class AgentDetail(AgentSummary):
    """An agent with its own instructions and its channels."""

    system_prompt: str
    channels: tuple[Binding, ...]


class AgentPage(View):
    """Agents by slug; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[AgentSummary, ...]
    next: str | None


def agent_page(agents: Sequence[Agent], cursor: str | None, limit: int) -> AgentPage:
    """Show up to ``limit`` of all agents, which are sorted by slug; the cursor is the last slug of the page before."""
    following = [agent for agent in agents if cursor is None or agent.slug > cursor]
    page = tuple(map(AgentSummary.model_validate, following[:limit]))
    return AgentPage(items=page, next=page[-1].slug if len(following) > limit else None)


def agent_detail(agent: Agent, channels: Sequence[AgentChannel]) -> AgentDetail:
    """Show everything about an agent."""
    return AgentDetail(
        **AgentSummary.model_validate(agent).model_dump(by_alias=False),
        system_prompt=agent.system_prompt,
        channels=tuple(map(Binding.model_validate, channels)),
    )
