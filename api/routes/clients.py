"""Clients, and what was spent for them today."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.clients.edits import ClientChange, NewClient
from maestro.domain.clients.views import ClientPage, ClientView, client_page
from maestro.domain.llm.usage_views import LIMIT, MOST

router = APIRouter(route_class=PasswordRoute, tags=["clients"], prefix="/api/clients")


@router.get("")
def list_clients(
    parts: Parts, limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT, cursor: str | None = None
) -> ClientPage:
    """List the clients by name; the cursor is the last name of the page before."""
    with parts.store.view() as tx:
        return client_page(tx.budgets.clients(), tx.budgets.client_levels(), cursor, limit)


@router.post("", status_code=HTTPStatus.CREATED)
def add_client(parts: Parts, new: NewClient) -> ClientView:
    """Make a client, whom agents and channels may name; 409 when its name or slug is taken."""
    with parts.store.begin() as tx:
        return tx.budgets.client_view(tx.clients.create(new, OPERATOR))


@router.get("/{name:path}")
def show_client(parts: Parts, name: str) -> ClientView:
    """Return a client by its name or its slug."""
    with parts.store.view() as tx:
        return tx.budgets.client_view(tx.clients.get(name))


@router.patch("/{name:path}")
def change_client(parts: Parts, name: str, change: ClientChange) -> ClientView:
    """Change the fields that are given; 409 for a client of the configuration."""
    with parts.store.begin() as tx:
        return tx.budgets.client_view(tx.clients.change(tx.clients.get(name), change, OPERATOR))


@router.delete("/{name:path}", status_code=HTTPStatus.NO_CONTENT)
def remove_client(parts: Parts, name: str) -> None:
    """Remove a client; 409 for one of the configuration, and while agents, channels or usage speak of it."""
    with parts.store.begin() as tx:
        tx.clients.remove(tx.clients.get(name), OPERATOR)
