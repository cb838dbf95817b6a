"""Conditional requests for pages: an unchanged page is answered with 304, before anything is read."""

import hashlib
from http import HTTPStatus

from fastapi import Request
from starlette.responses import Response

from api.guards import request_access, role_of
from api.routes.dependencies import parts_of

DIGITS = 24


def unchanged(request: Request, *also: str) -> Response | None:
    """Return 304 if the request's ETag is still current, before anything is read, else None.

    The tag covers all committed data, the role and the login, this start of the process, its static files and the
    address. A page with other content, such as the state of another server, passes it in ``also``. Scripts update
    relative times. Pages are never stored by browsers (no-store), so the script itself sends ``If-None-Match``.
    """
    tag = request.state.tag = _compute_tag(request, also)
    if tag not in request.headers.get("if-none-match", ""):
        return None
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})


def set_tag(request: Request, page: Response) -> None:
    """Add the ETag that ``unchanged`` computed, which is older than the data: a later change has another tag."""
    tag = getattr(request.state, "tag", "")
    if tag and page.status_code == HTTPStatus.OK:
        page.headers["ETag"] = tag


def _compute_tag(request: Request, also: tuple[str, ...]) -> str:
    session, state = request_access(request).session(request), request.app.state
    parts = (
        parts_of(request).store.mark(),
        str(role_of(request) or ""),
        session.id if session else "",
        state.start_id,
        state.assets.version,
        # The URL is part of the page's version, because its links are relative to it.
        str(request.url),
        *also,
    )
    digest = hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()
    return f'"{digest[:DIGITS]}"'
