"""Conditional requests for pages: a page that did not change is answered with 304, without reading the store."""

import hashlib
from http import HTTPStatus

from fastapi import Request
from starlette.responses import Response

from api.guards import request_access, role_of
from api.routes.dependencies import parts_of

DIGITS = 24


def not_modified(request: Request, *also: str) -> Response | None:
    """Return a 304 response if the request's ETag is still current, else None; the store is not read for this.

    The ETag covers all committed data, the role and the login session, the process start, the static files and the
    address. A page with other content, such as the state of another server, passes it in ``also``. Scripts update
    relative times. Browsers never store pages (no-store), so the script itself sends ``If-None-Match``.
    """
    tag = request.state.tag = _compute_tag(request, also)
    if tag not in request.headers.get("if-none-match", ""):
        return None
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})


def set_tag(request: Request, page: Response) -> None:
    """Set the ETag that ``not_modified`` computed before the data was read, so that a later change has another ETag."""
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
        # The URL is part of the ETag, because the links of the page are relative to its URL.
        str(request.url),
        *also,
    )
    digest = hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()
    return f'"{digest[:DIGITS]}"'
