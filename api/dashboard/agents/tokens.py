"""The page of the tokens by which agents outside are known: made, listed and revoked, with plain forms."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from pydantic import ValidationError
from starlette.responses import HTMLResponse, RedirectResponse, Response

from api.dashboard.pages import render
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Parts, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.tokens import MadeToken, NewToken
from maestro.domain.columns import LARGEST
from maestro.domain.errors import Conflict, NotFound

PAGE = "/agents/tokens"
TITLE = "Tokens of agents – Maestro"
SHOWN = 40

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Before = Annotated[int | None, Query(ge=1, le=LARGEST)]


@dataclass(frozen=True)
class _TokenFormState:
    """What the page is told beside the list: who was chosen, what was typed, and what came of it."""

    agent: str = ""
    name: str = ""
    problem: str = ""
    made: MadeToken | None = None


_EMPTY = _TokenFormState()


@router.get("")
def show(request: Request, agent: str = "", cursor: Before = None) -> HTMLResponse:
    """List the tokens that are not revoked, and offer to make another, for ``agent`` if somebody named one."""
    return _page(request, form=_TokenFormState(agent), before=cursor)


@router.post("")
def make(
    request: Request, parts: Parts, agent: Annotated[str, Form()] = "", name: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Make a token and show it, the only time; what cannot be made is said on the page."""
    try:
        new = NewToken(name=name.strip())
        with parts.store.begin() as tx:
            made = tx.agent_tokens.make(tx.agents.named(agent), new.name, OPERATOR)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        return _page(request, HTTPStatus.BAD_REQUEST, _TokenFormState(agent, name, f"Name: {problem}"))
    except (NotFound, Conflict) as error:
        return _page(request, _status(error), _TokenFormState(agent, name, str(error)))
    return _page(request, HTTPStatus.CREATED, _TokenFormState(agent, made=made))


@router.post("/revoke")
def revoke(
    request: Request,
    parts: Parts,
    agent: Annotated[str, Form()],
    number: Annotated[int, Form(ge=1, le=LARGEST)],
) -> Response:
    """Revoke a token, and lead back to the list."""
    try:
        with parts.store.begin() as tx:
            tx.agent_tokens.revoke(tx.agents.named(agent), number, OPERATOR)
    except NotFound as error:
        return _page(request, _status(error), _TokenFormState(agent, problem=str(error)))
    return RedirectResponse(PAGE, HTTPStatus.SEE_OTHER)


def _status(error: NotFound | Conflict) -> HTTPStatus:
    return HTTPStatus.NOT_FOUND if isinstance(error, NotFound) else HTTPStatus.CONFLICT


def _page(
    request: Request, status: HTTPStatus = HTTPStatus.OK, form: _TokenFormState = _EMPTY, before: int | None = None
) -> HTMLResponse:
    parts = parts_of(request)
    with parts.store.view() as tx:
        agents = [one for one in tx.agents.all() if one.status is not AgentStatus.ARCHIVED]
        held = tx.agent_tokens.held(before, SHOWN + 1)
    return render(
        request,
        "agent-tokens.html",
        status,
        at=PAGE,
        title=TITLE,
        agents=agents,
        held=held[:SHOWN],
        following=held[SHOWN - 1].token.id if len(held) > SHOWN else None,
        first=before is None,
        form=form,
        address=f"{request.url.scheme}://{request.headers['host']}/mcp" if parts.outside is not None else "",
    )
