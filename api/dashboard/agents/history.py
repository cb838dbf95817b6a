"""The history of an agent: its versions, their differences, and the rollback."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.agents.pages import AGENT_PAGE
from api.dashboard.pages import lead_back, render
from api.dashboard.refusals import refused
from api.errors import status_of
from api.guards import OPERATOR, PasswordRoute
from api.routes.surroundings import Number, Parts, parts_of
from maestro.domain.agents.differences import lines_of
from maestro.domain.agents.edits import MAX_REASON
from maestro.domain.agents.views import version_detail, version_page
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
        with parts.store.view() as tx:
            agent = tx.agents.named(slug)
            shown = version_page(tx.versions.of(agent, cursor, SHOWN + 1), SHOWN)
            newest = agent.version
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
    """Make a new version that is as that one was, and lead back to the agent."""
    try:
        with parts_of(request).store.begin() as tx:
            agent = tx.agents.named(slug)
            tx.agents.roll_back(agent, number, OPERATOR, reason.strip()[:MAX_REASON], force=force)
    except MaestroError as error:
        return _version(request, slug, number, None, error)
    return lead_back(f"{AGENT_PAGE}/{slug}", done="rolled")


def _version(
    request: Request, slug: str, number: int, against: int | None, problem: MaestroError | None = None
) -> HTMLResponse:
    try:
        with parts_of(request).store.view() as tx:
            agent = tx.agents.named(slug)
            edit = version_detail(*tx.versions.pair(agent, number, against))
            newest = agent.version
    except MaestroError as error:
        return refused(request, HERE, error)
    return render(
        request,
        "agent-version.html",
        status_of(problem) if problem is not None else HTTPStatus.OK,
        title=f"{slug}, version {number} – Maestro",
        slug=slug,
        edit=edit,
        changes=[(change, lines_of(change, is_first=edit.against is None)) for change in edit.changes],
        newest=newest,
        problem=str(problem or ""),
    )
