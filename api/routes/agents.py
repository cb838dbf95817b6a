"""Agents, and the channels they answer in."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.agent_views import AgentDetail, AgentPage, agent_detail, agent_page

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["agents"], prefix="/api/agents")


@router.get("")
def list_agents(
    parts: Parts, limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT, cursor: str | None = None
) -> AgentPage:
    """List the agents by slug; the cursor is the last slug of the page before."""
    with parts.store.view() as tx:
        return agent_page(tx.agents.all(), cursor, limit)


@router.get("/{slug}")
def show_agent(parts: Parts, slug: str) -> AgentDetail:
    """Return an agent with its instructions and channels."""
    with parts.store.view() as tx:
        return agent_detail(*tx.browse.agent(slug))
