"""The pages of one agent's versions and of its tokens."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.agents.pages import AGENT_PAGE
from api.dashboard.forms import FormRow, reason_of, submit
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.guards import OPERATOR, PasswordRoute
from api.routes.dependencies import Number, Parts, parts_of
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import Rollback
from maestro.domain.agents.tokens import IssuedToken, NewToken
from maestro.domain.agents.versions import lines_of
from maestro.domain.columns import LARGEST
from maestro.domain.errors import MaestroError
from maestro.domain.fields import read

HERE = "agents"
SHOWN = 50

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=f"{AGENT_PAGE}/{{slug}}/history")

Version = Annotated[int | None, Query(ge=1, le=LARGEST)]

PAGE = "/agents/tokens"
TITLE = "Tokens of agents – Maestro"
TOKENS_ON_A_PAGE = 40

token_router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=PAGE)

Before = Annotated[int | None, Query(ge=1, le=LARGEST)]


@router.get("")
def show(request: Request, parts: Parts, slug: str, cursor: Version = None) -> HTMLResponse:
    """List the edits of an agent, newest first."""
    try:
        newest = parts.agents.show(slug).version
        shown = parts.agents.versions(slug, SHOWN, str(cursor) if cursor is not None else None)
    except MaestroError as error:
        return refused(request, HERE, error)
    title = f"History of {slug} – Maestro"
    first = cursor is None
    return render(request, "agent-history.html", title=title, slug=slug, shown=shown, first=first, newest=newest)


@router.get("/{number}")
def show_version(request: Request, slug: str, number: Number, against: Version = None) -> HTMLResponse:
    """Show what an edit changed, or what is different between it and another version."""
    return _version(request, slug, number, against)


@router.post("/{number}/rollback")
def roll_back(
    request: Request,
    slug: str,
    number: Number,
    reason: Annotated[str, Form()] = "",
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Make a new version with the content of an earlier one, and lead back to the agent."""
    rollback = Rollback(version=number, reason=reason_of(reason), force=force)
    return submit(
        lambda: parts_of(request).agents.roll_back(slug, rollback, OPERATOR),
        lambda _: lead_back(f"{AGENT_PAGE}/{slug}", done="rolled"),
        lambda error: _version(request, slug, number, None, error),
    )


def _version(
    request: Request, slug: str, number: int, against: int | None, problem: MaestroError | None = None
) -> HTMLResponse:
    agents = parts_of(request).agents
    try:
        edit, newest = agents.version(slug, number, against), agents.show(slug).version
    except MaestroError as error:
        return refused(request, HERE, error)
    return render(
        request,
        "agent-version.html",
        title=f"{slug}, version {number} – Maestro",
        slug=slug,
        edit=edit,
        changes=[(change, lines_of(change, is_first=edit.against is None)) for change in edit.changes],
        newest=newest,
        problem=problem,
    )


@dataclass(frozen=True)
class _TokenFormState:
    """The chosen agent, the text of the form, and the new token or the error."""

    agent: str = ""
    name: str = ""
    problem: MaestroError | None = None
    made: IssuedToken | None = None


_EMPTY = _TokenFormState()


@token_router.get("")
def show_tokens(request: Request, agent: str = "", cursor: Before = None) -> HTMLResponse:
    """List the active tokens, with the form for another one, for ``agent`` if given."""
    return _page(request, _TokenFormState(agent), before=cursor)


@token_router.post("")
def make(
    request: Request, parts: Parts, agent: Annotated[str, Form()] = "", name: Annotated[str, Form()] = ""
) -> Response:
    """Create a token and show it once; an error is shown on the page."""
    return submit(
        lambda: parts.tokens.add(agent, read(NewToken, {"name": name.strip()}), OPERATOR),
        lambda made: _page(request, _TokenFormState(agent, made=made)),
        lambda error: _page(request, _TokenFormState(agent, name, error)),
    )


@token_router.post("/revoke")
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
        held = tx.agents.tokens.all_valid(before, TOKENS_ON_A_PAGE + 1)
    return render(
        request,
        "agent-tokens.html",
        HTTPStatus.CREATED if form.made else None,
        problem=form.problem,
        at=PAGE,
        title=TITLE,
        agents=agents,
        held=held[:TOKENS_ON_A_PAGE],
        following=held[TOKENS_ON_A_PAGE - 1].token.id if len(held) > TOKENS_ON_A_PAGE else None,
        first=before is None,
        form=form,
        address=f"{request.url.scheme}://{request.headers['host']}/mcp" if parts.outside is not None else "",
    )
