"""Agents, and the channels they answer in."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.agents import AgentStatus, Permission
from maestro.domain.errors import NotFound
from maestro.domain.values import Value
from maestro.domain.views import View

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["agents"], prefix="/api/agents")


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


class AgentPage(Value):
    """Agents by slug; ``next`` is the cursor of the following page, null at the end."""

    items: tuple[AgentSummary, ...]
    next: str | None


@router.get("")
def list_agents(
    parts: Parts, limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT, cursor: str | None = None
) -> AgentPage:
    """List the agents by slug; the cursor is the last slug of the page before."""
    with parts.store.view() as tx:
        following = [agent for agent in tx.agents.all() if cursor is None or agent.slug > cursor]
    page = tuple(map(AgentSummary.model_validate, following[:limit]))
    return AgentPage(items=page, next=page[-1].slug if len(following) > limit else None)


@router.get("/{slug}")
def show_agent(parts: Parts, slug: str) -> AgentDetail:
    """Return an agent with its instructions and channels."""
    with parts.store.view() as tx:
        agent = tx.agents.by_slug(slug)
        if agent is None:
            raise NotFound(f"there is no agent {slug!r}")
        channels = tx.browse.bindings(agent.id)
    return AgentDetail(
        **AgentSummary.model_validate(agent).model_dump(by_alias=False),
        system_prompt=agent.system_prompt,
        channels=tuple(map(Binding.model_validate, channels)),
    )
