"""REST routes of agents: their edits and versions, their tokens, and the channels that are bound to them.

See docs/decisions.md: route guards.
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Number, Parts
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import MAX_REASON, AgentChange, BindingChange, NewAgent, NewBinding
from maestro.domain.agents.tokens import MadeToken, NewToken, TokenPage, token_page
from maestro.domain.agents.views import (
    AgentDetail,
    AgentPage,
    Binding,
    BindingPage,
    VersionDetail,
    VersionPage,
    agent_page,
    version_detail,
    version_page,
)
from maestro.domain.columns import LARGEST
from maestro.domain.values import View
from maestro.domain.words import Slug

LIMIT = 100
MOST = 1000

agents = APIRouter(route_class=PasswordRoute, tags=["agents"], prefix="/api/agents")

Limit = Annotated[int, Query(ge=1, le=MOST)]
VersionCursor = Annotated[str | None, Query(pattern=r"^\d{1,18}$")]
Reason = Annotated[str, Query(max_length=MAX_REASON)]

tokens = APIRouter(route_class=PasswordRoute, tags=["agents"], prefix="/api/agents/{slug}/tokens")

bindings = APIRouter(route_class=PasswordRoute, tags=["bindings"], prefix="/api/bindings")


class Rollback(View):
    """Which version an agent is to be like again, and why."""

    version: Annotated[int, Field(ge=1)]
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    force: bool = False


@agents.get("")
def list_agents(parts: Parts, limit: Limit = LIMIT, cursor: str | None = None) -> AgentPage:
    """List the agents by slug; the cursor is the last slug of the page before."""
    with parts.store.view() as tx:
        return agent_page(tx.agents.all(), cursor, limit)


@agents.post("", status_code=HTTPStatus.CREATED)
def make_agent(parts: Parts, new: NewAgent, reason: Reason = "") -> AgentDetail:
    """Make an agent, which answers from the next message on; 409 when the slug is taken."""
    with parts.store.begin() as tx:
        return tx.agents.detail(tx.agents.create(new, OPERATOR, reason))


@agents.get("/{slug}")
def show_agent(parts: Parts, slug: str) -> AgentDetail:
    """Return an agent with all that can be edited of it, and its channels."""
    with parts.store.view() as tx:
        return tx.agents.detail(tx.agents.named(slug))


@agents.patch("/{slug}")
def change_agent(parts: Parts, slug: str, change: AgentChange, reason: Reason = "") -> AgentDetail:
    """Change the fields that are given, from the next message on; null is what everybody has.

    With ``version``, 409 when the agent is not at that version any more. 409 too when the last active conductor would
    go, unless ``force`` is true. A status of ``active`` restores an agent that is archived or paused.
    """
    with parts.store.begin() as tx:
        return tx.agents.detail(tx.agents.change(tx.agents.named(slug), change, OPERATOR, reason))


@agents.delete("/{slug}", status_code=HTTPStatus.NO_CONTENT)
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


@agents.get("/{slug}/versions")
def list_versions(parts: Parts, slug: str, limit: Limit = LIMIT, cursor: VersionCursor = None) -> VersionPage:
    """List the edits of an agent, newest first."""
    with parts.store.view() as tx:
        before = int(cursor) if cursor is not None else None
        return version_page(tx.versions.of(tx.agents.named(slug), before, limit + 1), limit)


@agents.get("/{slug}/versions/{number}")
def show_version(parts: Parts, slug: str, number: int, against: int | None = None) -> VersionDetail:
    """Return an agent as it was after an edit, and what is different from the one before, or from ``against``."""
    with parts.store.view() as tx:
        return version_detail(*tx.versions.pair(tx.agents.named(slug), number, against))


@agents.post("/{slug}/rollback")
def roll_back(parts: Parts, slug: str, wanted: Rollback) -> AgentDetail:
    """Make a new version that is as that one was."""
    with parts.store.begin() as tx:
        agent = tx.agents.named(slug)
        return tx.agents.detail(tx.agents.roll_back(agent, wanted.version, OPERATOR, wanted.reason, force=wanted.force))


@tokens.get("")
def list_tokens(
    parts: Parts,
    slug: str,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
    cursor: Annotated[int | None, Query(ge=1, le=LARGEST)] = None,
) -> TokenPage:
    """List the tokens of an agent, newest first, those that were revoked too; no token itself is kept."""
    with parts.store.view() as tx:
        return token_page(tx.agent_tokens.of(tx.agents.named(slug), cursor, limit + 1), limit)


@tokens.post("", status_code=HTTPStatus.CREATED)
def make_token(parts: Parts, slug: str, new: NewToken) -> MadeToken:
    """Make a token for an agent; it is shown only now. 409 for an archived agent."""
    with parts.store.begin() as tx:
        return tx.agent_tokens.make(tx.agents.named(slug), new.name, OPERATOR)


@tokens.delete("/{token_id}", status_code=HTTPStatus.NO_CONTENT)
def revoke_token(parts: Parts, slug: str, token_id: Number) -> None:
    """Revoke a token: from its next request on it opens nothing."""
    with parts.store.begin() as tx:
        tx.agent_tokens.revoke(tx.agents.named(slug), token_id, OPERATOR)


class BindingOrder(NewBinding):
    """A channel that is to belong to the agent of this slug."""

    agent: Slug


@bindings.get("")
def list_bindings(
    parts: Parts,
    agent: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
    cursor: Annotated[str | None, Query(pattern=r"^\d{1,18}$")] = None,
) -> BindingPage:
    """List the bound channels, the oldest first, of one agent if its slug is given."""
    with parts.store.view() as tx:
        return tx.agents.bound(agent, int(cursor or 0), limit)


@bindings.post("", status_code=HTTPStatus.CREATED)
def bind_channel(parts: Parts, new: BindingOrder) -> Binding:
    """Give a channel to an agent, from the next message on; 409 when it belongs to one already."""
    with parts.store.begin() as tx:
        return tx.agents.view(tx.agents.bind_channel(tx.agents.named(new.agent), new, OPERATOR))


@bindings.patch("/{binding_id}")
def change_binding(parts: Parts, binding_id: Number, change: BindingChange) -> Binding:
    """Change the fields that are given; 409 for a binding of the configuration."""
    with parts.store.begin() as tx:
        return tx.agents.view(tx.agents.change_binding(tx.agents.channel(binding_id), change, OPERATOR))


@bindings.delete("/{binding_id}", status_code=HTTPStatus.NO_CONTENT)
def free_channel(parts: Parts, binding_id: Number) -> None:
    """Free a channel; 409 for a binding of the configuration."""
    with parts.store.begin() as tx:
        tx.agents.unbind_channel(tx.agents.channel(binding_id), OPERATOR)
