"""Agents: who they are, what became of them with each edit, and the way back."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import MAX_REASON, AgentChange, NewAgent
from maestro.domain.agents.views import (
    AgentDetail,
    AgentPage,
    VersionDetail,
    VersionPage,
    agent_page,
    version_detail,
    version_page,
)
from maestro.domain.values import View

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["agents"], prefix="/api/agents")

Limit = Annotated[int, Query(ge=1, le=MOST)]
Number = Annotated[str | None, Query(pattern=r"^\d{1,18}$")]
Reason = Annotated[str, Query(max_length=MAX_REASON)]


class Rollback(View):
    """Which version an agent is to be like again, and why."""

    version: Annotated[int, Field(ge=1)]
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    force: bool = False


@router.get("")
def list_agents(parts: Parts, limit: Limit = LIMIT, cursor: str | None = None) -> AgentPage:
    """List the agents by slug; the cursor is the last slug of the page before."""
    with parts.store.view() as tx:
        return agent_page(tx.agents.all(), cursor, limit)


@router.post("", status_code=HTTPStatus.CREATED)
def make_agent(parts: Parts, new: NewAgent, reason: Reason = "") -> AgentDetail:
    """Make an agent, which answers from the next message on; 409 when the slug is taken."""
    with parts.store.begin() as tx:
        return tx.agents.detail(tx.agents.create(new, OPERATOR, reason))


@router.get("/{slug}")
def show_agent(parts: Parts, slug: str) -> AgentDetail:
    """Return an agent with all that can be edited of it, and its channels."""
    with parts.store.view() as tx:
        return tx.agents.detail(tx.agents.named(slug))


@router.patch("/{slug}")
def change_agent(parts: Parts, slug: str, change: AgentChange, reason: Reason = "") -> AgentDetail:
    """Change the fields that are given, from the next message on; null is what everybody has.

    With ``version``, 409 when the agent is not at that version any more. 409 too when the last active conductor would
    go, unless ``force`` is true. A status of ``active`` restores an agent that is archived or paused.
    """
    with parts.store.begin() as tx:
        return tx.agents.detail(tx.agents.change(tx.agents.named(slug), change, OPERATOR, reason))


@router.delete("/{slug}", status_code=HTTPStatus.NO_CONTENT)
def remove_agent(parts: Parts, slug: str, reason: Reason = "", *, purge: bool = False, force: bool = False) -> None:
    """Archive an agent: it answers no more, its channels are free, its conversations and memory stay.

    With ``purge`` it is gone for good, 409 while anything speaks of it. 409 for the last active conductor, unless
    ``force`` is true.
    """
    with parts.store.begin() as tx:
        agent = tx.agents.named(slug)
        if purge:
            tx.agents.purge(agent, OPERATOR, force=force)
        else:
            tx.agents.change(agent, AgentChange(status=AgentStatus.ARCHIVED, force=force), OPERATOR, reason)


@router.get("/{slug}/versions")
def list_versions(parts: Parts, slug: str, limit: Limit = LIMIT, cursor: Number = None) -> VersionPage:
    """List the edits of an agent, newest first."""
    with parts.store.view() as tx:
        before = int(cursor) if cursor is not None else None
        return version_page(tx.versions.of(tx.agents.named(slug), before, limit + 1), limit)


@router.get("/{slug}/versions/{number}")
def show_version(parts: Parts, slug: str, number: int, against: int | None = None) -> VersionDetail:
    """Return an agent as it was after an edit, and what is different from the one before, or from ``against``."""
    with parts.store.view() as tx:
        return version_detail(*tx.versions.pair(tx.agents.named(slug), number, against))


@router.post("/{slug}/rollback")
def roll_back(parts: Parts, slug: str, wanted: Rollback) -> AgentDetail:
    """Make a new version that is as that one was."""
    with parts.store.begin() as tx:
        agent = tx.agents.named(slug)
        return tx.agents.detail(tx.agents.roll_back(agent, wanted.version, OPERATOR, wanted.reason, force=wanted.force))
