"""The history of an agent: its versions, their differences, and the rollback."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.agents.pages import AGENT_PAGE
from api.dashboard.forms import reason_of, submit
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.guards import OPERATOR, PasswordRoute
from api.routes.dependencies import Number, Parts, parts_of
from maestro.domain.agents.edits import Rollback
from maestro.domain.agents.versions import lines_of
from maestro.domain.columns import LARGEST
from maestro.domain.errors import MaestroError

HERE = "agents"
SHOWN = 50

router = APIRouter(route_class=PasswordRoute, include_in_schema=False, prefix=f"{AGENT_PAGE}/{{slug}}/history")

Version = Annotated[int | None, Query(ge=1, le=LARGEST)]


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
