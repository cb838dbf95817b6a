"""Who wishes to be let in, who is known, and what was dropped at the door (docs/decisions.md: access)."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.people.owners import PersonId
from maestro.domain.people.views import (
    Approval,
    IgnoredPage,
    InvitationView,
    PairingPage,
    PairingView,
    PersonPage,
    ignored_page,
    pairing_page,
    pairing_view,
    person_page,
)
from maestro.domain.words import OwnerId
from maestro.intake import strangers

LIMIT = 100
MOST = 1000

router = APIRouter(route_class=PasswordRoute, tags=["people"], prefix="/api")

Limit = Annotated[int, Query(ge=1, le=MOST)]
Number = Annotated[str | None, Query(pattern=r"^\d{1,18}$")]


@router.get("/pairings")
def list_pairings(parts: Parts, limit: Limit = LIMIT, cursor: Number = None) -> PairingPage:
    """List the wishes to be let in, newest first, with their codes."""
    with parts.store.view() as tx:
        rows = tx.pairings.page(int(cursor) if cursor else None, limit + 1)
        return pairing_page(rows, limit, tx.now)


@router.post("/pairings/invite", status_code=HTTPStatus.CREATED)
def invite(parts: Parts, wish: Approval | None = None) -> InvitationView:
    """Make a code that lets in whoever sends `/pair CODE`, once; it is not shown again."""
    as_owner = wish is not None and wish.owner
    with parts.store.begin() as tx:
        code, expires_at = strangers.invite(tx, parts.pairing(), OPERATOR, as_owner=as_owner)
    return InvitationView(code=code, owner=as_owner, expires_at=expires_at)


@router.post("/pairings/{pairing}/approve")
def approve(parts: Parts, pairing: str, approval: Approval | None = None) -> PairingView:
    """Let in the person of a pairing, by its id or code, and tell them; 409 when the code ran out."""
    as_owner = approval is not None and approval.owner
    with parts.store.begin() as tx:
        return pairing_view(strangers.approve(tx, pairing, OPERATOR, as_owner=as_owner), tx.now)


@router.post("/pairings/{pairing}/refuse")
def refuse(parts: Parts, pairing: str) -> PairingView:
    """Keep a person out, without a word to them; 409 when they were let in."""
    with parts.store.begin() as tx:
        return pairing_view(strangers.refuse(tx, pairing, OPERATOR), tx.now)


@router.get("/people")
def list_people(parts: Parts, limit: Limit = LIMIT, cursor: OwnerId | None = None) -> PersonPage:
    """List the people who were let in, by platform and user id; owners are not among them unless they were."""
    with parts.store.view() as tx:
        return person_page(tx.pairings.people(PersonId.parse(cursor) if cursor else None, limit + 1), limit)


@router.delete("/people/{person:path}", status_code=HTTPStatus.NO_CONTENT)
def remove_person(parts: Parts, person: OwnerId) -> None:
    """Know a person, `platform:userId`, no longer, from their next message on."""
    with parts.store.begin() as tx:
        strangers.forget(tx, PersonId.parse(person), OPERATOR)


@router.get("/ignored")
def list_ignored(parts: Parts, limit: Limit = LIMIT, cursor: Number = None) -> IgnoredPage:
    """Count the messages that were dropped at the door, by channel and reason, the largest counts first."""
    offset = int(cursor or 0)
    with parts.store.view() as tx:
        return ignored_page(tx.ignored.page(offset, limit + 1), offset, limit)
