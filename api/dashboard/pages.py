"""The pages of the dashboard."""

from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from api.connector import connector_origins
from api.dashboard.assets import Assets
from api.guards import PasswordRoute, doorman
from api.routes.surroundings import Parts, parts_of

HOME = "/chat"
TEMPLATES = Path(__file__).parent / "templates"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


def environment(assets: Assets) -> Environment:
    """Return the templates; everything in them is escaped, and a missing value is an error."""
    templates = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    templates.globals["static"] = assets.url
    return templates


def render(request: Request, name: str, status: HTTPStatus = HTTPStatus.OK, **values: Any) -> HTMLResponse:
    """Return a page.

    Every template has ``title``, ``version``, ``demo``, ``password_set``, ``csrf_token`` (empty without a login, which
    then needs none), ``logged_in`` and ``static(name)``, the address of a style sheet or script.
    """
    templates: Environment = request.app.state.templates
    parts, session = parts_of(request), doorman(request).session(request)
    page = templates.get_template(name).render(
        version=parts.version,
        demo=parts.demo,
        password_set=bool(parts.guard.password),
        csrf_token=session.csrf_token if session else "",
        logged_in=session is not None,
        **values,
    )
    return HTMLResponse(page, status_code=status)


@router.get("/")
async def home() -> RedirectResponse:
    """Lead to the chat."""
    return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)


@router.get("/chat")
def chat(request: Request, parts: Parts) -> HTMLResponse:
    """Show the chat; ``web_url`` is where its socket connects, empty when the web connector does not run."""
    sockets = connector_origins(parts, request.url.scheme, request.headers["host"])
    return render(request, "chat.html", title="Chat – Maestro", web_url=sockets[0] if sockets else "")
