"""Answers errors with a page for browsers, and with the same message as JSON for programs."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.pages import render
from api.errors import ErrorBody
from api.guards import is_page, request_access, role_of
from maestro.domain.errors import MaestroError

UNKNOWN = "This page does not exist"
REFUSED = "This cannot be shown"
FOR_PROGRAMS = ("/api/", "/hooks/", "/mcp")
"""Path prefixes whose responses are always JSON, also for browsers."""

ErrorHandler = Callable[[Request, Any], Awaitable[Response]]


def refusal_page(request: Request, here: str, error: MaestroError) -> HTMLResponse:
    """Return the page with the reason why something cannot be shown; ``here`` is its entry in the navigation."""
    return render(request, "refused.html", heading=REFUSED, here=here, problem=error)


def show_error_pages(app: FastAPI) -> None:
    """Make the app answer errors with a page, where a browser opens a page or sends a form."""
    for kind, handler in list(app.exception_handlers.items()):
        app.add_exception_handler(kind, _answer_with_page(handler))


def _answer_with_page(handler: Any) -> ErrorHandler:
    async def handle(request: Request, error: Any) -> Response:
        response: Response = await handler(request, error)
        if not is_page(request) or request.url.path.startswith(FOR_PROGRAMS):
            return response
        page = await asyncio.to_thread(_error_page, request, response)
        page.headers.update({name: text for name, text in response.headers.items() if not name.startswith("content-")})
        return page

    return handle


def _error_page(request: Request, response: Response) -> HTMLResponse:
    """Return an error as a page; the navigation is shown only after a login."""
    # For a page that does not exist no route guard ran, so the role is read here.
    role = role_of(request) or request_access(request).role_by_cookie(request)
    request.state.role = role
    status = HTTPStatus(response.status_code)
    problem = ErrorBody.model_validate_json(bytes(response.body)).message
    heading = UNKNOWN if status is HTTPStatus.NOT_FOUND else REFUSED
    rail = {"here": ""} if role else {}
    return render(request, "refused.html", status, heading=heading, problem=problem, **rail)
