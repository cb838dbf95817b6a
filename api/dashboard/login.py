"""Logging in and out, for browsers with a form and for programs with JSON."""

import asyncio
import json
from http import HTTPStatus

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import JSONResponse, RedirectResponse, Response

from api.dashboard.pages import HOME, render
from api.errors import InvalidRequest, waiting
from api.front import OWN_SITE
from api.guards import COOKIE, FOR_VIEWERS, OpenRoute, PasswordRoute, is_form, request_access
from api.logins import USER, USERS, DashboardRole
from api.routes.dependencies import parts_of
from maestro.domain.errors import MaestroError, Unauthorized
from maestro.domain.throttle import TooManyAttempts
from maestro.domain.values import Value

TITLE = "Log in – Maestro"
UNSENT = "Your login is over, so nothing was done. Log in, and send it again."

for_everybody = APIRouter(route_class=OpenRoute, include_in_schema=False)
for_operators = APIRouter(route_class=PasswordRoute, include_in_schema=False)


class Login(Value):
    """The form of a login; ``next`` is the page to open after it.

    The password alone decides the role. The field for a name is for password managers.
    """

    user: str = USER
    password: str
    next: str = HOME


@for_everybody.get("/login")
def login_page(request: Request, next: str = HOME, left: bool = False, unsent: bool = False) -> Response:  # noqa: A002 - its name in the address
    """Ask for the password, unless there is none; after a logout (``left``) the browser clears its data.

    ``unsent`` says that a form was sent without a login, and not done.
    """
    keeper = request_access(request)
    if keeper.open or keeper.session(request) is not None:
        return RedirectResponse(_own_page(next), HTTPStatus.SEE_OTHER)
    # A link on another site must not log the user out.
    left = left and request.headers.get("sec-fetch-site", "none") in OWN_SITE
    return render(request, "login.html", title=TITLE, next=_own_page(next), problem=UNSENT if unsent else "", left=left)


@for_everybody.post("/login")
async def login(request: Request) -> Response:
    """Start a session: redirect a form to its page, answer JSON with the session's ``csrfToken``."""
    given = await _given(request)
    try:
        cookie, token = await _begin(request, given)
    except (Unauthorized, TooManyAttempts) as error:
        if not is_form(request):
            raise
        return await asyncio.to_thread(_again, request, given, error)
    response: Response = JSONResponse({"csrfToken": token})
    if is_form(request):
        response = RedirectResponse(_own_page(given.next), HTTPStatus.SEE_OTHER)
    if cookie:
        lifetime = int(request_access(request).sessions.lifetime.total_seconds())
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, cookie, max_age=lifetime, httponly=True, samesite="strict", secure=secure)
    return response


@for_operators.post("/logout", openapi_extra=FOR_VIEWERS)
def logout(request: Request) -> Response:
    """End the session of the cookie, if there is one."""
    keeper = request_access(request)
    session = keeper.session(request)
    if session is not None:
        keeper.sessions.end(session)
    response = RedirectResponse("/login?left=true", HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


async def _begin(request: Request, given: Login) -> tuple[str, str]:
    """Return a cookie and its token; empty ones where no password is set. Raises what ``Doorman.check`` raises."""
    keeper = request_access(request)
    if keeper.open:
        return "", ""
    # An unknown user name counts as a failed login, as a wrong password does.
    role = await keeper.check(request, given.password, "" if given.user in USERS else given.user)
    cookie, session = keeper.sessions.issue(role)
    await asyncio.to_thread(_note, request, role)
    return cookie, session.csrf_token


def _note(request: Request, role: DashboardRole) -> None:
    with parts_of(request).store.begin() as tx:
        tx.system.audit.add(role, "login")


def _again(request: Request, given: Login, error: MaestroError) -> Response:
    status = HTTPStatus.TOO_MANY_REQUESTS if isinstance(error, TooManyAttempts) else HTTPStatus.UNAUTHORIZED
    values = {"title": TITLE, "next": _own_page(given.next), "problem": str(error), "left": False}
    page = render(request, "login.html", status, **values)
    page.headers.update(waiting(error))
    return page


async def _given(request: Request) -> Login:
    try:
        fields = dict(await request.form()) if is_form(request) else json.loads(await request.body())
        return Login.model_validate(fields)
    except (ValidationError, UnicodeDecodeError, json.JSONDecodeError):
        raise InvalidRequest("Send the field password, as a form or as JSON.") from None


def _own_page(path: str) -> str:
    """Return a path of the dashboard, or the chat for an address that leads elsewhere."""
    within = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if within else HOME
