"""The forms for people who wish to be let in or were, and for clients, who pay."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from api.dashboard.accounts_sheet import PAGE, Shown, TypedClient, done, sheet
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts, parts_of
from maestro.domain.clients.edits import ClientChange, NewClient
from maestro.domain.people.owners import PersonId
from maestro.domain.people.views import InvitationView
from maestro.domain.reading import read
from maestro.intake import strangers
from maestro.store.transaction import Transaction

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Word = Annotated[str, Form()]
Flag = Annotated[bool, Form()]
Wish = Callable[[Transaction], object]


@router.post("/pairings/approve")
def approve(request: Request, pairing: Word, owner: Flag = False) -> Response:
    """Let a person in, as a user or as an owner, and tell them."""
    word = "owner" if owner else "user"
    return _done(request, Shown(), word, lambda tx: strangers.approve(tx, pairing, OPERATOR, as_owner=owner))


@router.post("/pairings/refuse")
def refuse(request: Request, pairing: Word) -> Response:
    """Keep a person out, without a word to them."""
    return _done(request, Shown(), "refused", lambda tx: strangers.refuse(tx, pairing, OPERATOR))


@router.post("/pairings/invite")
def invite(request: Request, parts: Parts, owner: Flag = False) -> Response:
    """Make a code that lets somebody in, and show it, the only time."""
    with parts.store.begin() as tx:
        code, expires_at = strangers.invite(tx, parts.pairing(), OPERATOR, as_owner=owner)
    invitation = InvitationView(code=code, owner=owner, expires_at=expires_at)
    return sheet(request, Shown(invitation=invitation), HTTPStatus.CREATED)


@router.post("/people/remove")
def remove_person(request: Request, person: Word) -> Response:
    """Know a person no longer, from their next message on."""
    return _done(request, Shown(), "forgotten", lambda tx: strangers.forget(tx, PersonId.parse(person), OPERATOR))


@router.post("/clients/add")
def add_client(request: Request, typed: Annotated[TypedClient, Form()]) -> Response:
    """Make a client, whom agents and channels may name."""
    shown = Shown("client", client=typed)
    return _done(request, shown, "added", lambda tx: tx.clients.create(read(NewClient, _fields(typed)), OPERATOR))


@router.post("/clients/change")
def change_client(request: Request, typed: Annotated[TypedClient, Form()]) -> Response:
    """Change a client."""

    def wish(tx: Transaction) -> None:
        fields = {name: value for name, value in _fields(typed).items() if name != "name"}
        tx.clients.change(tx.clients.get(typed.name), read(ClientChange, fields), OPERATOR)

    return _done(request, Shown("client", editing=True, client=typed), "changed", wish)


@router.post("/clients/remove")
def remove_client(request: Request, name: Word) -> Response:
    """Remove a client of whom nothing speaks."""
    return _done(request, Shown(), "removed", lambda tx: tx.clients.remove(tx.clients.get(name), OPERATOR))


def _fields(typed: TypedClient) -> dict[str, object]:
    """Return what was typed, without the blanks around it; a budget that is left empty is none of its own."""
    found: dict[str, object] = {name: text.strip() for name, text in typed.model_dump().items()}
    return {**found, "daily_budget_usd": found["daily_budget_usd"] or None}


def _done(request: Request, shown: Shown, word: str, wish: Wish) -> Response:
    def within() -> None:
        with parts_of(request).store.begin() as tx:
            wish(tx)

    return done(request, shown, word, within)
