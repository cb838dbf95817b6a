"""Renders the pages of the dashboard from their templates."""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from api.dashboard import words
from api.dashboard.assets import Assets
from api.errors import status_of
from api.front import connector_origins
from api.guards import PasswordRoute, request_access, role_of
from api.live import set_tag
from api.logins import DashboardRole
from api.routes.dependencies import Parts, parts_of
from maestro.domain.errors import MaestroError

HOME = "/"
TEMPLATES = Path(__file__).parent / "templates"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


def environment(assets: Assets) -> Environment:
    """Return the template environment: values are escaped, and a missing value is an error."""
    templates = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    functions = (words.clock, words.span, words.money, words.number)
    templates.globals.update(static=assets.url, **{function.__name__: function for function in functions})
    return templates


def render(request: Request, name: str, status: HTTPStatus | None = None, /, **values: Any) -> HTMLResponse:
    """Return a page; ``at`` is the path for the page's links, if the page answers a form sent to another path.

    The value ``problem``, if it is an error, gives the page its status, unless ``status`` does.

    Every template has ``title``, ``version``, ``demo``, ``password_set``, ``csrf_token`` (empty without a login),
    ``logged_in``, ``role`` (operator, viewer, or empty before the login), ``may_change`` (false for a viewer), ``now``,
    and the functions ``static(name)``, the address of a style sheet or script, ``far(moment)``, ``clock(moment)``,
    ``clock_time_of(moment)``, ``span(ms)``, ``money(usd)``, ``number(n)``, and ``link(name=value)``, the address of
    this page with other parameters.
    """
    templates: Environment = request.app.state.templates
    parts, session = parts_of(request), request_access(request).session(request)
    now, role = parts.clock(), role_of(request)
    # Macros are imported with the page's values, so these values are visible in the macros too.
    shared = {
        "version": parts.version,
        "demo": parts.demo,
        "password_set": bool(parts.guard.password),
        "csrf_token": session.csrf_token if session else "",
        "logged_in": session is not None,
        "role": role or "",
        "may_change": role is DashboardRole.OPERATOR,
        "now": now,
        "far": partial(words.far, now=now),
        "clock_time_of": partial(words.clock_time, now=now),
        "link": partial(link, request, values.get("at", "")),
    }
    problem = values.get("problem")
    if "problem" in values:
        values["problem"] = str(problem or "")
    if status is None:
        status = status_of(problem) if isinstance(problem, MaestroError) else HTTPStatus.OK
    page = HTMLResponse(templates.get_template(name).render({**shared, **values}), status_code=status)
    set_tag(request, page)
    return page


def address(path: str, parameters: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    """Return a path with query parameters; a list of values becomes several parameters."""
    return f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path


def link(request: Request, path: str = "", /, **changed: object) -> str:
    """Return the address of this page with other parameters; None or an empty text removes a parameter."""
    unchanged = [(name, value) for name, value in request.query_params.multi_items() if name not in changed]
    added = [(name, value) for name, value in changed.items() if value not in (None, "")]
    return address(path or request.url.path, unchanged + added)


def lead_back(page: str, **parameters: object) -> RedirectResponse:
    """Redirect a form to a page, so that a reload does not send the form again; empty parameters are left out."""
    filled = {name: value for name, value in parameters.items() if value not in (None, "")}
    return RedirectResponse(address(page, filled), HTTPStatus.SEE_OTHER)


@router.get("/chat")
def chat(request: Request, parts: Parts) -> HTMLResponse:
    """Show the chat page; ``web_url`` is the address of the web connector's socket, empty if it does not run.

    Messages from this page come from the operator, so a viewer only reads how to get access.
    """
    if role_of(request) is DashboardRole.VIEWER:
        return render(request, "chat-off.html")
    sockets = connector_origins(parts, request.url.scheme, request.headers["host"])
    return render(request, "chat.html", web_url=sockets[0] if sockets else "")
