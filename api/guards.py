"""Authentication and authorization of requests, and the values that routes take from a request.

Each router declares its guard by the class of its routes; see docs/decisions.md: route guards.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote, urlencode

from fastapi import Depends, Path, Request
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match

from api.credentials import (
    USER,
    DashboardRole,
    LoginSession,
    LoginSessions,
    Passwords,
    SignatureAuthentication,
    TokenAuthentication,
    same_secret,
)
from api.errors import BASIC, ErrorBody
from api.front import SAFE_METHODS, TRUSTED_ORIGIN
from api.parts import AgentChat, ApiParts, GuardSettings
from maestro.domain.columns import LARGEST
from maestro.domain.errors import Forbidden, NotFound, Unauthorized
from maestro.domain.network import Throttle
from maestro.intake.webhooks import WebhookIntake
from maestro.store.store import Clock, Store

OPERATOR = str(DashboardRole.OPERATOR)
"""The actor in the audit log for a request with the operator's password."""
UNKNOWN = "unknown"
"""The actor in the audit log for a request with a wrong password."""
VIEWER = "x-viewer"
FOR_VIEWERS = {VIEWER: True}
"""The ``openapi_extra`` of a POST route that changes nothing, so that viewers may use the route."""
COOKIE = "maestro_session"
CSRF_HEADER = "X-CSRF-Token"
LOOK_ONLY = "A viewer sees everything and changes nothing. Log in with webui.password to change something."
NO_TOKEN = f"The CSRF token of the login is missing in the header {CSRF_HEADER}. Reload the page."
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class RouteGuard(StrEnum):
    """The kind of authentication that a route requires."""

    PASSWORD = "password"  # noqa: S105 - a guard's name
    BEARER = "bearer"
    SIGNATURE = "signature"
    NONE = "none"


SCHEMES: Mapping[str, Mapping[str, str]] = {
    "password": {
        "type": "http",
        "scheme": "basic",
        "description": f"The user {USER} with webui.password. The user viewer with webui.viewerPassword "
        "may send only the requests marked x-viewer.",
    },
    "token": {"type": "http", "scheme": "bearer", "description": "A token of an agent"},
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": "HMAC-SHA256 with the secret of the webhook: as standardwebhooks.com defines it, together with "
        "the headers webhook-id and webhook-timestamp, or as GitHub sends it in X-Hub-Signature-256",
    },
    "login": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": f"The cookie of POST /login; changes also need its csrfToken in the header {CSRF_HEADER}",
    },
}
"""The security schemes of the OpenAPI document."""
ERROR_RESPONSES: Mapping[int | str, dict[str, Any]] = {"default": {"model": ErrorBody, "description": "The error"}}
"""The error response of every route, for OpenAPI."""


class GuardedRoute(APIRoute):
    """A route that authenticates the caller before it reads the request body."""

    guard: ClassVar[RouteGuard]
    security: ClassVar[Sequence[str]] = ()
    """The accepted security schemes, by their names in ``SCHEMES``."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        extra: dict[str, Any] = {"security": [{scheme: []} for scheme in self.security]} if self.security else {}
        if self.guard is RouteGuard.PASSWORD:
            extra[VIEWER] = set(options.get("methods") or {"GET"}) <= SAFE_METHODS
        extra.update(options.get("openapi_extra") or {})
        self.viewer = bool(extra.get(VIEWER))
        errors = ERROR_RESPONSES if options.get("include_in_schema", True) else {}
        responses = {**errors, **(options.get("responses") or {})}
        super().__init__(path, endpoint, **{**options, "openapi_extra": extra, "responses": responses})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that runs the guard first; a dependency would run after FastAPI has parsed the body."""
        handler = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                await request_access(request).admit(self, request)
            except Unauthorized:
                if not is_page(request):
                    raise
                return _redirect_to_login(request)
            return await handler(request)

        return guarded


class PasswordRoute(GuardedRoute):
    """A route that requires HTTP Basic or a login cookie; a viewer may only send requests that change nothing."""

    guard = RouteGuard.PASSWORD
    security = ("password", "login")


class BearerRoute(GuardedRoute):
    """A route for external agents, which authenticate by a token; ``calling_agent`` returns the agent."""

    guard = RouteGuard.BEARER
    security = ("token",)


class SignatureRoute(GuardedRoute):
    """A route for webhook senders, which sign their requests; ``signed_request`` returns the checked request."""

    guard = RouteGuard.SIGNATURE
    security = ("signature",)


class OpenRoute(GuardedRoute):
    """A route without authentication; only ``/healthz``, ``/login`` and static files have one."""

    guard = RouteGuard.NONE


class RequestAccess:
    """The authentication and authorization of all requests, with the login sessions."""

    def __init__(self, settings: GuardSettings, store: Store, clock: Clock, hooks: WebhookIntake) -> None:
        self.open = settings.is_open
        self._passwords = Passwords(settings)
        self._store = store
        self._throttle = Throttle(clock, "passwords")
        self._bearers = TokenAuthentication(store, clock)
        self.signatures = SignatureAuthentication(hooks, clock)
        self.sessions = LoginSessions(settings, store, clock)

    async def admit(self, route: GuardedRoute, request: Request) -> None:
        """Return if the route's guard admits the request, else raise an error.

        Raises ``Unauthorized``, ``TooManyAttempts``, ``Forbidden`` for a cookie without its CSRF token or a change by a
        viewer, and the errors of ``TokenAuthentication`` and ``SignatureAuthentication``.
        """
        if route.guard is RouteGuard.BEARER:
            await asyncio.to_thread(self._bearers.authenticate_request, request)
        elif route.guard is RouteGuard.SIGNATURE:
            await self.signatures.admit(request)
        elif route.guard is RouteGuard.PASSWORD:
            role = request.state.role = await self._authenticate(request)
            if role is not DashboardRole.OPERATOR and not route.viewer:
                raise await self._record_refusal(request, role, LOOK_ONLY)

    async def _authenticate(self, request: Request) -> DashboardRole:
        if self.open:
            return DashboardRole.OPERATOR
        if "authorization" in request.headers:
            user, password = _read_basic_credentials(request)
            return await self.check_password(request, password, user)
        session = await asyncio.to_thread(self.find_session, request)
        if session is None:
            raise Unauthorized("Log in, or send HTTP Basic with the user maestro.", challenge=_auth_challenge(request))
        # A page of Temporal's Web UI has no CSRF token; its origin, which no page can forge, was checked instead.
        is_checked = request.method in SAFE_METHODS or TRUSTED_ORIGIN in request.scope
        if not is_checked and not same_secret(await _read_csrf_token(request), session.csrf_token):
            raise await self._record_refusal(request, session.role, NO_TOKEN)
        return session.role

    def find_session(self, request: Request) -> LoginSession | None:
        """Return the login session of the request's cookie; None without a valid cookie."""
        cookie = request.cookies.get(COOKIE)
        return self.sessions.read_session(cookie) if cookie and not self.open else None

    def role_by_cookie(self, request: Request) -> DashboardRole | None:
        """Return the role of the request's login session, None without a session; no password is checked."""
        session = self.find_session(request)
        return DashboardRole.OPERATOR if self.open else session.role if session else None

    async def check_password(self, request: Request, password: str, user: str = "") -> DashboardRole:
        """Return the role of a password; ``user`` may name the user to whom the password must belong.

        Raises ``Unauthorized`` and ``TooManyAttempts``; wrong passwords delay the right password, but never block it.
        """
        address = request.client.host if request.client else ""
        await asyncio.sleep(self._throttle.answer_delay(address).total_seconds())
        role = self._passwords.find_role(password, user)
        if role is not None:
            return role
        self._throttle.record_failure(address)
        await asyncio.to_thread(self.add_audit_entry, UNKNOWN, "login.failed")
        raise Unauthorized("The user or the password is wrong.", challenge=_auth_challenge(request))

    async def _record_refusal(self, request: Request, role: DashboardRole, reason: str) -> Forbidden:
        # The path template, because the requested path may hold a name or key that does not belong in the audit log.
        subject = f"{request.method} {request.scope['route'].path}"
        await asyncio.to_thread(self.add_audit_entry, role, "refused", subject, reason)
        return Forbidden(reason)

    def add_audit_entry(self, actor: str, action: str, subject: str = "", detail: str = "") -> None:
        """Add an entry to the audit log."""
        with self._store.begin() as tx:
            tx.system.audit.add_entry(actor, action, subject, detail)


def request_access(request: Request) -> RequestAccess:
    """Return the access control of the app that answers this request."""
    access: RequestAccess = request.app.state.request_access
    return access


def request_role(request: Request) -> DashboardRole | None:
    """Return the role of the authenticated caller; None on a page without authentication."""
    role: DashboardRole | None = getattr(request.state, "role", None)
    return role


def is_form(request: Request) -> bool:
    """Tell whether the body is an HTML form."""
    return request.headers.get("content-type", "").startswith(FORMS)


def is_page(request: Request) -> bool:
    """Tell whether a browser opens a page or sends a form, so that it gets a page instead of a JSON error."""
    return (request.method in SAFE_METHODS or is_form(request)) and "text/html" in request.headers.get("accept", "")


def _redirect_to_login(request: Request) -> RedirectResponse:
    """Redirect to the login page; the parameters are the page to open next and whether a form was not applied."""
    if request.method in SAFE_METHODS:
        parameters = {"next": request.url.path + (f"?{request.url.query}" if request.url.query else "")}
    else:
        parameters = {"next": _referring_page(request), "unsent": "true"}
    return RedirectResponse(f"/login?{urlencode(parameters)}", HTTPStatus.SEE_OTHER)


def _referring_page(request: Request) -> str:
    """Return the page that sent the form, or the home page if that page is unknown or cannot be opened."""
    _, own_host, rest = request.headers.get("referer", "").partition(f"://{request.headers['host']}/")
    path = f"/{rest.partition('?')[0]}"
    scope = {**request.scope, "method": "GET", "path": unquote(path)}
    exists = any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    return f"/{rest}" if own_host and exists else "/"


async def _read_csrf_token(request: Request) -> str:
    """Return the CSRF token of the request from the header or the form, or an empty text."""
    token = request.headers.get(CSRF_HEADER, "")
    if not token and is_form(request):
        token = str((await request.form()).get("csrf_token", ""))
    return token


def _read_basic_credentials(request: Request) -> tuple[str, str]:
    """Return user name and password; a malformed header raises ``Unauthorized``, and counts as no wrong guess."""
    scheme, _, encoded = request.headers["authorization"].partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user, colon, password = "", "", ""
    if scheme.lower() != "basic" or not colon:
        raise Unauthorized(
            "Authenticate by HTTP Basic with the user maestro; no other scheme is accepted.",
            challenge=_auth_challenge(request),
        )
    return user, password


def _auth_challenge(request: Request) -> str:
    """Return the WWW-Authenticate header, empty for scripts of a page, so that no browser dialog opens."""
    return BASIC if request.headers.get("sec-fetch-mode", "navigate") == "navigate" else ""


def request_parts(request: Request) -> ApiParts:
    """Return the ``ApiParts`` of the app that answers this request."""
    parts: ApiParts = request.app.state.parts
    return parts


async def _parts(request: Request) -> ApiParts:
    # Async, because FastAPI would run a plain function in a thread of its pool.
    return request_parts(request)


def require_chat(parts: ApiParts) -> AgentChat:
    """Return the agent chat (#maestro); raises ``NotFound`` if the configuration disables it."""
    if parts.chat is None:
        raise NotFound("chat.enabled is false, so there is no #maestro chat here")
    return parts.chat


Parts = Annotated[ApiParts, Depends(_parts)]

Number = Annotated[int, Path(ge=1, le=LARGEST)]
"""The id of a table row, as a path parameter."""
