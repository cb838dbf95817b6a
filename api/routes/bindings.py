"""Channels that belong to an agent."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Number, Parts
from maestro.domain.agents.edits import BindingChange, NewBinding
from maestro.domain.agents.views import Binding, BindingPage
from maestro.domain.words import Slug

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["bindings"], prefix="/api/bindings")


class BindingOrder(NewBinding):
    """A channel that is to belong to the agent of this slug."""

    agent: Slug


@router.get("")
def list_bindings(
    parts: Parts,
    agent: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT,
    cursor: Annotated[str | None, Query(pattern=r"^\d{1,18}$")] = None,
) -> BindingPage:
    """List the bound channels, the oldest first, of one agent if its slug is given."""
    with parts.store.view() as tx:
        return tx.agents.bound(agent, int(cursor or 0), limit)


@router.post("", status_code=HTTPStatus.CREATED)
def bind_channel(parts: Parts, new: BindingOrder) -> Binding:
    """Give a channel to an agent, from the next message on; 409 when it belongs to one already."""
    with parts.store.begin() as tx:
        return tx.agents.view(tx.agents.bind_channel(tx.agents.named(new.agent), new, OPERATOR))


@router.patch("/{binding_id}")
def change_binding(parts: Parts, binding_id: Number, change: BindingChange) -> Binding:
    """Change the fields that are given; 409 for a binding of the configuration."""
    with parts.store.begin() as tx:
        return tx.agents.view(tx.agents.change_binding(tx.agents.channel(binding_id), change, OPERATOR))


@router.delete("/{binding_id}", status_code=HTTPStatus.NO_CONTENT)
def free_channel(parts: Parts, binding_id: Number) -> None:
    """Free a channel; 409 for a binding of the configuration."""
    with parts.store.begin() as tx:
        tx.agents.unbind_channel(tx.agents.channel(binding_id), OPERATOR)
