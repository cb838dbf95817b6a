"""The pages of the dashboard: how each is made from its template."""

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
from api.live import tag
from api.logins import DashboardRole
from api.routes.dependencies import Parts, parts_of
from maestro.domain.errors import MaestroError

HOME = "/"
TEMPLATES = Path(__file__).parent / "templates"

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


def environment(assets: Assets) -> Environment:
    """Return the templates; everything in them is escaped, and a missing value is an error."""
    templates = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    templates.globals.update(
        static=assets.url, clock=words.clock, span=words.span, money=words.money, number=words.number
    )
    return templates


def render(request: Request, name: str, status: HTTPStatus | None = None, /, **values: Any) -> HTMLResponse:
    """Return a page; ``at`` among the values is its path, if a form of it was sent elsewhere.

    A ``problem`` among the values that is an error gives the page its status, unless there is a ``status``.

    Every template has ``title``, ``version``, ``demo``, ``password_set``, ``csrf_token`` (empty without a login, which
    then needs none), ``logged_in``, ``role`` (operator, viewer, or empty before the login), ``may_change`` (false for
    a viewer), ``now``, and the functions ``static(name)``, the address of a style sheet or script,
    ``far(moment)``, ``clock(moment)``, ``clock_time_of(moment)``, ``span(ms)``, ``money(usd)``, ``number(n)``, and
    ``link(name=value)``, the address of this page with other parameters.
    """
    templates: Environment = request.app.state.templates
    parts, session = parts_of(request), request_access(request).session(request)
    now, role = parts.clock(), role_of(request)
    # Macros are imported with the page's values, so these are visible in them too.
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
        "link": partial(_link, request, values.get("at", "")),
    }
    problem = values.get("problem")
    refusal = problem if isinstance(problem, MaestroError) else None
    if "problem" in values:
        shared["problem"] = str(values.pop("problem") or "")
    page = HTMLResponse(
        templates.get_template(name).render({**shared, **values}),
        status_code=status or (status_of(refusal) if refusal is not None else HTTPStatus.OK),
    )
    tag(request, page)
    return page


def with_parameters(request: Request, **changed: object) -> str:
    """Return the address of a page with some of its parameters changed, or left out where they are None or empty."""
    return _link(request, "", **changed)


def _link(request: Request, at: str, /, **changed: object) -> str:
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in changed]
    added = [(name, str(value)) for name, value in changed.items() if value not in (None, "")]
    return (at or request.url.path) + (f"?{urlencode(kept + added)}" if kept or added else "")


def lead_back(page: str, **parameters: object) -> RedirectResponse:
    """Answer a form: lead to a page, so that a reload does not send the form again."""
    given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
    return RedirectResponse(page + (f"?{urlencode(given)}" if given else ""), HTTPStatus.SEE_OTHER)


@router.get("/chat")
def chat(request: Request, parts: Parts) -> HTMLResponse:
    """Show the chat; ``web_url`` is where its socket connects, empty when the web connector does not run.

    The writer is the operator to the agents, so a viewer only reads how to get access.
    """
    if role_of(request) is DashboardRole.VIEWER:
        return render(request, "chat-off.html", title="Chat – Maestro")
    sockets = connector_origins(parts, request.url.scheme, request.headers["host"])
    return render(request, "chat.html", title="Chat – Maestro", web_url=sockets[0] if sockets else "")
