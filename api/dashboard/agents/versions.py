"""The pages of an agent's versions, and of the tokens of external agents."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.agents.pages import AGENT_PAGE
from api.dashboard.forms import FormRow, FormText, edit_reason, submit
from api.dashboard.pages import redirect_to_page, refusal_page, render
from api.guards import OPERATOR, Number, Parts, PasswordRoute, request_parts
from maestro.domain.agents.agent import AgentStatus, IssuedToken, NewToken
from maestro.domain.agents.edits import Rollback
from maestro.domain.agents.views import diff_field_lines
from maestro.domain.columns import LARGEST
from maestro.domain.errors import MaestroError
from maestro.domain.values import read

HERE = "agents"
HISTORY_PAGE = f"{AGENT_PAGE}/{{slug}}/history"
EDITS = 50
TOKENS_PAGE = "/agents/tokens"
TOKENS = 40

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)

QueryRow = Annotated[int | None, Query(ge=1, le=LARGEST)]
"""The id of a table row, as a query parameter."""


@router.get(HISTORY_PAGE)
def show_history(request: Request, parts: Parts, slug: str, cursor: QueryRow = None) -> HTMLResponse:
    """List the versions of an agent, newest first."""
    try:
        newest = parts.agents.show(slug).version
        page = parts.agents.versions(slug, EDITS, str(cursor) if cursor is not None else None)
    except MaestroError as error:
        return refusal_page(request, HERE, error)
    return render(request, "agent-history.html", slug=slug, page=page, first=cursor is None, newest=newest)


@router.get(f"{HISTORY_PAGE}/{{number}}")
def show_version(request: Request, slug: str, number: Number, against: QueryRow = None) -> HTMLResponse:
    """Show what a version of an agent changed, or how it differs from the version ``against``."""
    return _version_page(request, slug, number, against)


@router.post(f"{HISTORY_PAGE}/{{number}}/rollback")
def roll_back(
    request: Request, slug: str, number: Number, reason: FormText = "", force: Annotated[bool, Form()] = False
) -> Response:
    """Create a new version of an agent with the content of an earlier version, and redirect to the agent."""
    rollback = Rollback(version=number, reason=edit_reason(reason), force=force)
    return submit(
        lambda: request_parts(request).agents.roll_back(slug, rollback, OPERATOR),
        lambda _: redirect_to_page(f"{AGENT_PAGE}/{slug}", done="rolled"),
        lambda error: _version_page(request, slug, number, None, error),
    )


def _version_page(
    request: Request, slug: str, number: int, against: int | None, problem: MaestroError | None = None
) -> HTMLResponse:
    agents = request_parts(request).agents
    try:
        edit, newest = agents.version(slug, number, against), agents.show(slug).version
    except MaestroError as error:
        return refusal_page(request, HERE, error)
    return render(
        request,
        "agent-version.html",
        slug=slug,
        edit=edit,
        changes=[(change, diff_field_lines(change, is_first=edit.against is None)) for change in edit.changes],
        newest=newest,
        problem=problem,
    )


@dataclass(frozen=True)
class _TokenFormState:
    """The state of the token form: the selected agent, the entered name, and the new token or the error."""

    agent: str = ""
    name: str = ""
    problem: MaestroError | None = None
    made: IssuedToken | None = None


@router.get(TOKENS_PAGE)
def show_tokens(request: Request, agent: str = "", cursor: QueryRow = None) -> HTMLResponse:
    """List the valid tokens of all agents, with a form that creates one; ``agent`` is selected in the form."""
    return _tokens_page(request, _TokenFormState(agent), before=cursor)


@router.post(TOKENS_PAGE)
def add_token(request: Request, parts: Parts, agent: FormText = "", name: FormText = "") -> Response:
    """Create a token for an agent and show it once; an error is shown on the page."""
    return submit(
        lambda: parts.tokens.add(agent, read(NewToken, {"name": name.strip()}), OPERATOR),
        lambda made: _tokens_page(request, _TokenFormState(agent, made=made)),
        lambda error: _tokens_page(request, _TokenFormState(agent, name, error)),
    )


@router.post(f"{TOKENS_PAGE}/revoke")
def revoke_token(request: Request, parts: Parts, agent: FormText, number: FormRow) -> Response:
    """Revoke a token of an agent, and redirect to the list."""
    return submit(
        lambda: parts.tokens.revoke(agent, number, OPERATOR),
        lambda _: redirect_to_page(TOKENS_PAGE),
        lambda error: _tokens_page(request, _TokenFormState(agent, problem=error)),
    )


def _tokens_page(request: Request, form: _TokenFormState, before: int | None = None) -> HTMLResponse:
    parts = request_parts(request)
    with parts.store.view() as tx:
        agents = [agent for agent in tx.agents.list_agents() if agent.status is not AgentStatus.ARCHIVED]
        tokens = tx.agents.tokens.list_valid_tokens(before, TOKENS + 1)
    return render(
        request,
        "agent-tokens.html",
        HTTPStatus.CREATED if form.made else None,
        problem=form.problem,
        at=TOKENS_PAGE,
        agents=agents,
        tokens=tokens[:TOKENS],
        following=tokens[TOKENS - 1].token.id if len(tokens) > TOKENS else None,
        first=before is None,
        form=form,
        address=f"{request.url.scheme}://{request.headers['host']}/mcp" if parts.outside is not None else "",
    )
