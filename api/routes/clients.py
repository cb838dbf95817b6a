"""Clients, and what was spent for them today."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.usage_views import LIMIT, MOST, ClientPage, client_page

router = APIRouter(route_class=PasswordRoute, tags=["clients"], prefix="/api/clients")


@router.get("")
def list_clients(
    parts: Parts, limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT, cursor: str | None = None
) -> ClientPage:
    """List the clients by name; the cursor is the last name of the page before."""
    with parts.store.view() as tx:
        return client_page(tx.budgets.clients(), tx.budgets.client_levels(), cursor, limit)
