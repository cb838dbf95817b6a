"""The page of the tokens of external agents: create, list and revoke them with plain forms."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.forms import FormRow, submit
from api.dashboard.pages import lead_back, render
from api.guards import OPERATOR, PasswordRoute
from api.routes.dependencies import Parts, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.tokens import IssuedToken, NewToken
from maestro.domain.columns import LARGEST
from maestro.domain.errors import MaestroError
from maestro.domain.fields import read

PAGE = "/agents/tokens"
TITLE = "Tokens of agents – Maestro"
SHOWN = 40

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Before = Annotated[int | None, Query(ge=1, le=LARGEST)]


@dataclass(frozen=True)
class _TokenFormState:
    """The chosen agent, the text of the form, and the new token or the error."""

    agent: str = ""
    name: str = ""
    problem: MaestroError | None = None
    made: IssuedToken | None = None


_EMPTY = _TokenFormState()


@router.get("")
def show(request: Request, agent: str = "", cursor: Before = None) -> HTMLResponse:
    """List the active tokens, with the form for another one, for ``agent`` if given."""
    return _page(request, _TokenFormState(agent), before=cursor)


@router.post("")
def make(
    request: Request, parts: Parts, agent: Annotated[str, Form()] = "", name: Annotated[str, Form()] = ""
) -> Response:
    """Create a token and show it once; an error is shown on the page."""
    return submit(
        lambda: parts.tokens.add(agent, read(NewToken, {"name": name.strip()}), OPERATOR),
        lambda made: _page(request, _TokenFormState(agent, made=made)),
        lambda error: _page(request, _TokenFormState(agent, name, error)),
    )


@router.post("/revoke")
def revoke(request: Request, parts: Parts, agent: Annotated[str, Form()], number: FormRow) -> Response:
    """Revoke a token, and redirect to the list."""
    return submit(
        lambda: parts.tokens.revoke(agent, number, OPERATOR),
        lambda _: lead_back(PAGE),
        lambda error: _page(request, _TokenFormState(agent, problem=error)),
    )


def _page(request: Request, form: _TokenFormState = _EMPTY, before: int | None = None) -> HTMLResponse:
    parts = parts_of(request)
    with parts.store.view() as tx:
        agents = [one for one in tx.agents.all() if one.status is not AgentStatus.ARCHIVED]
        held = tx.agents.tokens.all_valid(before, SHOWN + 1)
    return render(
        request,
        "agent-tokens.html",
        HTTPStatus.CREATED if form.made else None,
        problem=form.problem,
        at=PAGE,
        title=TITLE,
        agents=agents,
        held=held[:SHOWN],
        following=held[SHOWN - 1].token.id if len(held) > SHOWN else None,
        first=before is None,
        form=form,
        address=f"{request.url.scheme}://{request.headers['host']}/mcp" if parts.outside is not None else "",
    )
