"""Errors as pages: a person in a browser reads a sentence and a way on, a program the same sentence as JSON."""

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

TITLE = "Not here – Maestro"
UNKNOWN = "There is no such page"
REFUSED = "This cannot be shown"
FOR_PROGRAMS = ("/api/", "/hooks/", "/mcp")
"""Where every answer is JSON, whoever asks."""

ErrorHandler = Callable[[Request, Any], Awaitable[Response]]


def refused(request: Request, here: str, error: MaestroError) -> HTMLResponse:
    """Return the page that says why something cannot be shown; ``here`` is the page of the rail that it belongs to."""
    return render(request, "refused.html", title=TITLE, heading=REFUSED, here=here, problem=error)


def answer_people(app: FastAPI) -> None:
    """Turn the answer of each of the app's error handlers into a page where a person opens one or sends a form."""
    for kind, handler in list(app.exception_handlers.items()):
        app.add_exception_handler(kind, _with_page(handler))


def _with_page(handler: Any) -> ErrorHandler:
    async def answered(request: Request, error: Any) -> Response:
        response: Response = await handler(request, error)
        if not is_page(request) or request.url.path.startswith(FOR_PROGRAMS):
            return response
        page = await asyncio.to_thread(_page, request, response)
        kept = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
        page.headers.update(kept)
        return page

    return answered


def _page(request: Request, response: Response) -> HTMLResponse:
    """Return an error as a page; the list of pages is shown after a login only."""
    # No guard ran for a page that does not exist, so the role is read here.
    role = role_of(request) or request_access(request).remembered(request)
    request.state.role = role
    status = HTTPStatus(response.status_code)
    problem = ErrorBody.model_validate_json(bytes(response.body)).message
    heading = UNKNOWN if status is HTTPStatus.NOT_FOUND else REFUSED
    rail = {"here": ""} if role else {}
    return render(request, "refused.html", status, title=TITLE, heading=heading, problem=problem, **rail)
