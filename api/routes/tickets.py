"""Tickets with which a page of the dashboard may speak on the web connector as the operator.

See docs/decisions.md: web identity.
"""

import secrets
from datetime import timedelta

from fastapi import APIRouter

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from connectors.base import IdentityRole
from maestro.domain.values import Value

TICKET_BYTES = 32
LIFETIME = timedelta(seconds=60)

router = APIRouter(route_class=PasswordRoute, tags=["web"])


class Ticket(Value):
    """A way in that works once, within 60 seconds."""

    ticket: str


@router.post("/api/web/tickets")
def add_ticket(parts: Parts) -> Ticket:
    """Return a ticket for the auth frame of a web socket."""
    ticket = secrets.token_urlsafe(TICKET_BYTES)
    with parts.store.begin() as tx:
        tx.people.add_ticket(ticket, (OPERATOR, OPERATOR, IdentityRole.OWNER), LIFETIME)
    return Ticket(ticket=ticket)
