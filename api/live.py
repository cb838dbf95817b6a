"""Conditional answers of pages: one that nothing has happened to since is answered in microseconds, without a body."""

import hashlib
from http import HTTPStatus

from fastapi import Request
from starlette.responses import Response

from api.guards import request_access, role_of
from api.routes.dependencies import parts_of

DIGITS = 24


def unchanged(request: Request, *also: str) -> Response | None:
    """Return 304 if the page would be the same as the one of the request's ETag, before anything is read.

    The tag is made of what a page is made of: everything that is committed, who looks and with which login, this start
    of the process, its style sheets and scripts, and what the address says. Whoever shows anything else, such as the
    state of another server, says it in ``also``. Times that go on by themselves are the script's, which has them from
    the page. Pages are never kept by browsers (no-store), so the script itself sends ``If-None-Match``.
    """
    made = request.state.tag = _tag(request, also)
    if made not in request.headers.get("if-none-match", ""):
        return None
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": made})


def tag(request: Request, page: Response) -> None:
    """Put the tag on a page that asked ``unchanged`` before it was made; what changed meanwhile has another one."""
    made = getattr(request.state, "tag", "")
    if made and page.status_code == HTTPStatus.OK:
        page.headers["ETag"] = made


def _tag(request: Request, also: tuple[str, ...]) -> str:
    session, state = request_access(request).session(request), request.app.state
    made_of = (
        parts_of(request).store.mark(),
        str(role_of(request) or ""),
        session.id if session else "",
        state.boot,
        state.assets.version,
        # The URL is part of the page's version, because its links are relative to it.
        str(request.url),
        *also,
    )
    digest = hashlib.sha256("\n".join(made_of).encode("utf-8", "replace")).hexdigest()
    return f'"{digest[:DIGITS]}"'
