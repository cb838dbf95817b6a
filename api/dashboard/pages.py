"""Renders the pages of the dashboard from their templates, answers conditional requests, and shows errors as pages."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from api.credentials import DashboardRole
from api.dashboard import words
from api.dashboard.assets import Assets
from api.errors import ErrorBody, http_status
from api.front import connector_origins
from api.guards import Parts, PasswordRoute, is_page, request_access, request_parts, request_role
from maestro.domain.errors import MaestroError

HOME = "/"
TEMPLATES = Path(__file__).parent / "templates"
UNKNOWN = "This page does not exist"
REFUSED = "This cannot be shown"
FOR_PROGRAMS = ("/api/", "/hooks/", "/mcp")
"""The path prefixes below which every response is JSON, even for browsers."""

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


def create_environment(assets: Assets) -> Environment:
    """Return the template environment: values are escaped, and a missing value is an error."""
    templates = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    functions = (words.clock, words.span, words.money, words.number)
    templates.globals.update(static=assets.url, **{function.__name__: function for function in functions})
    return templates


def render(request: Request, name: str, status: HTTPStatus | None = None, /, **values: Any) -> HTMLResponse:
    """Return a template as a page; ``at`` is the path for links if the page answers a form sent to another path.

    The HTTP status is ``status``, else the status of the error in the value ``problem``, else 200.

    Every template has ``title``, ``version``, ``demo``, ``password_set``, ``csrf_token`` (empty without a login),
    ``logged_in``, ``role`` (operator, viewer, or empty before the login), ``may_change`` (false for a viewer), ``now``,
    and the functions ``static(name)``, the address of a style sheet or script, ``far(moment)``, ``clock(moment)``,
    ``clock_time_of(moment)``, ``span(ms)``, ``money(usd)``, ``number(n)``, and ``link(name=value)``, the address of
    this page with other parameters.
    """
    templates: Environment = request.app.state.templates
    parts, session = request_parts(request), request_access(request).find_session(request)
    now, role = parts.clock(), request_role(request)
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
        status = http_status(problem) if isinstance(problem, MaestroError) else HTTPStatus.OK
    page = HTMLResponse(templates.get_template(name).render({**shared, **values}), status_code=status)
    # ``not_modified`` computed this ETag before the data was read, so that a later change has another ETag.
    tag = getattr(request.state, "tag", "")
    if tag and page.status_code == HTTPStatus.OK:
        page.headers["ETag"] = tag
    return page


def address(path: str, parameters: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    """Return a path with query parameters; a list of values becomes several parameters."""
    return f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path


def link(request: Request, path: str = "", /, **changed: object) -> str:
    """Return the address of this page with changed query parameters; None or an empty text removes a parameter."""
    unchanged = [(name, value) for name, value in request.query_params.multi_items() if name not in changed]
    added = [(name, value) for name, value in changed.items() if value not in (None, "")]
    return address(path or request.url.path, unchanged + added)


def redirect_to_page(page: str, **parameters: object) -> RedirectResponse:
    """Redirect to a page after a form, so that a reload does not send it again; empty parameters are left out."""
    filled = {name: value for name, value in parameters.items() if value not in (None, "")}
    return RedirectResponse(address(page, filled), HTTPStatus.SEE_OTHER)


def not_modified(request: Request, *also: str) -> Response | None:
    """Return a 304 response if the request's ETag is still current, else None, without reading the page's data.

    The ETag covers all committed data, the role, the login session, the process start, the static files and the
    address. ``also`` is other content of the page, such as the state of another server. Browsers do not store pages
    (no-store), so a script sends ``If-None-Match``; the script also updates relative times.
    """
    session, state = request_access(request).find_session(request), request.app.state
    parts = (
        request_parts(request).store.mark(),
        str(request_role(request) or ""),
        session.id if session else "",
        state.start_id,
        state.assets.version,
        # The URL is part of the ETag, because the links of the page are relative to its URL.
        str(request.url),
        *also,
    )
    digest = hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()
    tag = request.state.tag = f'"{digest[:24]}"'
    if tag not in request.headers.get("if-none-match", ""):
        return None
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})


def refusal_page(request: Request, here: str, error: MaestroError) -> HTMLResponse:
    """Return a page that says why something cannot be shown; ``here`` is the current entry of the navigation."""
    return render(request, "refused.html", heading=REFUSED, here=here, problem=error)


def show_error_pages(app: FastAPI) -> None:
    """Make the app answer errors with an HTML page when a browser opens a page or sends a form."""
    for kind, handler in list(app.exception_handlers.items()):
        app.add_exception_handler(kind, _answer_with_page(handler))


def _answer_with_page(handler: Any) -> Callable[[Request, Any], Awaitable[Response]]:
    async def handle(request: Request, error: Any) -> Response:
        response: Response = await handler(request, error)
        if not is_page(request) or request.url.path.startswith(FOR_PROGRAMS):
            return response
        page = await asyncio.to_thread(_error_page, request, response)
        page.headers.update({name: text for name, text in response.headers.items() if not name.startswith("content-")})
        return page

    return handle


def _error_page(request: Request, response: Response) -> HTMLResponse:
    """Return an error response as an HTML page; the navigation is shown only after a login."""
    # No route guard ran if the page does not exist, so the role is read here.
    role = request_role(request) or request_access(request).role_by_cookie(request)
    request.state.role = role
    status = HTTPStatus(response.status_code)
    problem = ErrorBody.model_validate_json(bytes(response.body)).message
    heading = UNKNOWN if status is HTTPStatus.NOT_FOUND else REFUSED
    rail = {"here": ""} if role else {}
    return render(request, "refused.html", status, heading=heading, problem=problem, **rail)


@router.get("/chat")
def chat(request: Request, parts: Parts) -> HTMLResponse:
    """Show the chat page; ``web_url`` is the web connector's socket address, empty if the connector does not run.

    Messages from this page count as the operator's, so a viewer gets a page that says how to log in.
    """
    if request_role(request) is DashboardRole.VIEWER:
        return render(request, "chat-off.html")
    sockets = connector_origins(parts, request.url.scheme, request.headers["host"])
    return render(request, "chat.html", web_url=sockets[0] if sockets else "")
