"""Login and logout: browsers send a form, programs send JSON."""

import asyncio
import json
from http import HTTPStatus

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import JSONResponse, RedirectResponse, Response

from api.credentials import USER, USERS
from api.dashboard.pages import HOME, render
from api.errors import InvalidRequest, retry_after_header
from api.front import OWN_SITE
from api.guards import COOKIE, FOR_VIEWERS, OpenRoute, PasswordRoute, is_form, request_access
from maestro.domain.errors import Unauthorized
from maestro.domain.network import TooManyAttempts
from maestro.domain.values import Value

EXPIRED = "Your login has expired, so the form was not applied. Log in, and send the form again."

open_router = APIRouter(route_class=OpenRoute, include_in_schema=False)
router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


class Login(Value):
    """The fields of a login; ``next`` is the path of the page to open after the login.

    The password decides the role. The field ``user`` is there for password managers; an unknown user name is refused.
    """

    user: str = USER
    password: str
    next: str = HOME


@open_router.get("/login")
def show_login(request: Request, next: str = HOME, left: bool = False, unsent: bool = False) -> Response:  # noqa: A002 - the parameter's name in the address
    """Show the login form, if a password is set; after a logout (``left``), the browser deletes its stored data.

    With ``unsent`` the page says that a form was not applied, because the login had expired.
    """
    access = request_access(request)
    if access.open or access.find_session(request) is not None:
        return RedirectResponse(safe_redirect_path(next), HTTPStatus.SEE_OTHER)
    # A link on another site must not make the browser delete the user's data.
    left = left and request.headers.get("sec-fetch-site", "none") in OWN_SITE
    return render(request, "login.html", next=safe_redirect_path(next), problem=EXPIRED if unsent else "", left=left)


@open_router.post("/login")
async def login(request: Request) -> Response:
    """Check the password and start a session; redirect a form, and return the ``csrfToken`` for JSON."""
    try:
        sent = dict(await request.form()) if is_form(request) else json.loads(await request.body())
        fields = Login.model_validate(sent)
    except (ValidationError, UnicodeDecodeError, json.JSONDecodeError):
        raise InvalidRequest("Send the field password, as a form or as JSON.") from None
    try:
        cookie, token = await _start_session(request, fields)
    except (Unauthorized, TooManyAttempts) as error:
        if not is_form(request):
            raise
        status = HTTPStatus.TOO_MANY_REQUESTS if isinstance(error, TooManyAttempts) else HTTPStatus.UNAUTHORIZED
        values = {"next": safe_redirect_path(fields.next), "problem": str(error), "left": False}
        page = await asyncio.to_thread(render, request, "login.html", status, **values)
        page.headers.update(retry_after_header(error))
        return page
    response: Response = JSONResponse({"csrfToken": token})
    if is_form(request):
        response = RedirectResponse(safe_redirect_path(fields.next), HTTPStatus.SEE_OTHER)
    if cookie:
        lifetime = int(request_access(request).sessions.lifetime.total_seconds())
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, cookie, max_age=lifetime, httponly=True, samesite="strict", secure=secure)
    return response


@router.post("/logout", openapi_extra=FOR_VIEWERS)
def logout(request: Request) -> Response:
    """End the login session of the request's cookie, if there is one, and redirect to the login page."""
    access = request_access(request)
    session = access.find_session(request)
    if session is not None:
        access.sessions.end_session(session)
    response = RedirectResponse("/login?left=true", HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


async def _start_session(request: Request, fields: Login) -> tuple[str, str]:
    """Return a session cookie and its CSRF token, empty if no password is set; raises as ``check_password``."""
    access = request_access(request)
    if access.open:
        return "", ""
    # An unknown user name counts as a failed login in the same way as a wrong password.
    role = await access.check_password(request, fields.password, "" if fields.user in USERS else fields.user)
    cookie, session = access.sessions.start_session(role)
    await asyncio.to_thread(access.add_audit_entry, role, "login")
    return cookie, session.csrf_token


def safe_redirect_path(path: str) -> str:
    """Return the path if it leads to this site, else the home page."""
    within = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if within else HOME
