"""The forms for people who wish to be let in or were, and for clients, who pay."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from api.dashboard.accounts_sheet import PAGE, Shown, TypedClient, done, sheet
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts
from maestro.domain.clients.edits import ClientChange, NewClient
from maestro.domain.people.views import Approval
from maestro.domain.reading import read

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Word = Annotated[str, Form()]
Flag = Annotated[bool, Form()]


@router.post("/pairings/approve")
def approve(request: Request, parts: Parts, pairing: Word, owner: Flag = False) -> Response:
    """Let a person in, as a user or as an owner, and tell them."""
    word = "owner" if owner else "user"
    return done(request, Shown(), word, lambda: parts.people.approve(pairing, OPERATOR, Approval(owner=owner)))


@router.post("/pairings/refuse")
def refuse(request: Request, parts: Parts, pairing: Word) -> Response:
    """Keep a person out, without a word to them."""
    return done(request, Shown(), "refused", lambda: parts.people.refuse(pairing, OPERATOR))


@router.post("/pairings/invite")
def invite(request: Request, parts: Parts, owner: Flag = False) -> Response:
    """Make a code that lets somebody in, and show it, the only time."""
    invitation = parts.people.invite(OPERATOR, Approval(owner=owner))
    return sheet(request, Shown(invitation=invitation), HTTPStatus.CREATED)


@router.post("/people/remove")
def remove_person(request: Request, parts: Parts, person: Word) -> Response:
    """Know a person no longer, from their next message on."""
    return done(request, Shown(), "forgotten", lambda: parts.people.remove(person, OPERATOR))


@router.post("/clients/add")
def add_client(request: Request, parts: Parts, typed: Annotated[TypedClient, Form()]) -> Response:
    """Make a client, whom agents and channels may name."""
    shown = Shown("client", client=typed)
    return done(request, shown, "added", lambda: parts.clients.add(read(NewClient, _fields(typed)), OPERATOR))


@router.post("/clients/change")
def change_client(request: Request, parts: Parts, typed: Annotated[TypedClient, Form()]) -> Response:
    """Change a client."""
    fields = {name: value for name, value in _fields(typed).items() if name != "name"}
    return done(
        request,
        Shown("client", editing=True, client=typed),
        "changed",
        lambda: parts.clients.change(typed.name, read(ClientChange, fields), OPERATOR),
    )


@router.post("/clients/remove")
def remove_client(request: Request, parts: Parts, name: Word) -> Response:
    """Remove a client of whom nothing speaks."""
    return done(request, Shown(), "removed", lambda: parts.clients.remove(name, OPERATOR))


def _fields(typed: TypedClient) -> dict[str, object]:
    """Return what was typed, without the blanks around it; a budget that is left empty is none of its own."""
    found: dict[str, object] = {name: text.strip() for name, text in typed.model_dump().items()}
    return {**found, "daily_budget_usd": found["daily_budget_usd"] or None}
