"""Who may use a route: each declares exactly one guard, as the class of its router's routes (decision 24)."""

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import urlencode

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from api.bearers import Bearers
from api.errors import BASIC, Unauthorized
from api.front import SAFE_METHODS
from api.parts import GuardSettings
from api.sessions import Session, Sessions
from api.signatures import Signatures
from maestro.domain.errors import Forbidden
from maestro.domain.throttle import Throttle
from maestro.intake.hooks import Hooks
from maestro.store.store import Clock, Store

USER = "maestro"
OPERATOR = "operator"
"""How the person with the password is called in the audit log."""
COOKIE = "maestro_session"
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf_token"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class Guard(StrEnum):
    """What a route asks of a request."""

    PASSWORD = "password"  # noqa: S105 - the name of a guard
    BEARER = "bearer"
    SIGNATURE = "signature"
    NONE = "none"


SCHEMES: Mapping[str, Mapping[str, str]] = {
    "password": {"type": "http", "scheme": "basic", "description": f"The user {USER} and webui.password"},
    "token": {"type": "http", "scheme": "bearer", "description": "A token of an agent"},
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": "HMAC-SHA256 under the secret of the webhook: as standardwebhooks.com says, with webhook-id and "
        "webhook-timestamp, or as GitHub does in X-Hub-Signature-256",
    },
    "login": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": f"The cookie of POST /login; changes also need its csrfToken in the header {CSRF_HEADER}",
    },
}
"""The guards in the words of OpenAPI."""


class GuardedRoute(APIRoute):
    """A route that looks at who asks before it looks at what is asked."""

    guard: ClassVar[Guard]
    security: ClassVar[Sequence[str]] = ()
    """The ways through the guard, by their names in ``SCHEMES``."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        ways: list[dict[str, list[str]]] = [{way: []} for way in self.security]
        extra = {"security": ways} if ways else {}
        options["openapi_extra"] = {**extra, **(options.get("openapi_extra") or {})}
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Put the guard in front of the route; FastAPI would read and parse the body before any dependency."""
        handler = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                await doorman(request).admit(self.guard, request)
            except Unauthorized:
                if not _is_page(request):
                    raise
                return _to_login(request)
            return await handler(request)

        return guarded


class PasswordRoute(GuardedRoute):
    """For the operator: HTTP Basic or the cookie of a login."""

    guard = Guard.PASSWORD
    security = ("password", "login")


class BearerRoute(GuardedRoute):
    """For an agent outside: one of its tokens; the route finds the agent with ``caller``."""

    guard = Guard.BEARER
    security = ("token",)


class SignatureRoute(GuardedRoute):
    """For programs outside: what they send is signed; the route finds it with ``delivered``."""

    guard = Guard.SIGNATURE
    security = ("signature",)


class OpenRoute(GuardedRoute):
    """For everybody: only ``/healthz``, ``/login`` and static files."""

    guard = Guard.NONE


class Doorman:
    """Decides about requests, and knows who is logged in."""

    def __init__(self, settings: GuardSettings, store: Store, clock: Clock, hooks: Hooks) -> None:
        self._password = settings.password
        self._store = store
        self._throttle = Throttle(clock, "passwords")
        self._bearers = Bearers(store, clock)
        self.signatures = Signatures(hooks, clock)
        self.sessions = Sessions(settings, clock)

    @property
    def open(self) -> bool:
        """Whether no password is set, so that whoever reaches the port is the operator."""
        return not self._password

    async def admit(self, guard: Guard, request: Request) -> None:
        """Return if the request may pass.

        Raises ``Unauthorized``, ``TooManyAttempts``, or ``Forbidden`` when a cookie comes without its token, and what
        ``Bearers`` and ``Signatures`` raise.
        """
        if guard is Guard.NONE or (guard is Guard.PASSWORD and self.open):
            return
        if guard is Guard.BEARER:
            await asyncio.to_thread(self._bearers.admit, request)
            return
        if guard is Guard.SIGNATURE:
            await self.signatures.admit(request)
            return
        if "authorization" in request.headers:
            user, password = _basic(request)
            await asyncio.to_thread(self.check, request, user, password)
            return
        session = self.session(request)
        if session is None:
            raise Unauthorized("Log in, or send HTTP Basic with the user maestro.", challenge=_challenge(request))
        if request.method not in SAFE_METHODS:
            await _check_token(request, session)

    def session(self, request: Request) -> Session | None:
        """Return the login of the request's cookie, if it has a valid one."""
        cookie = request.cookies.get(COOKIE)
        return self.sessions.read(cookie) if cookie and not self.open else None

    def check(self, request: Request, user: str, password: str) -> None:
        """Return if name and password are right; raises ``Unauthorized`` and ``TooManyAttempts``."""
        address = request.client.host if request.client else ""
        right = _same(user, USER) & _same(password, self._password)
        self._throttle.judge(address, right)
        if right:
            return
        with self._store.begin() as tx:
            tx.audit.add("unknown", "login.failed", address)
        raise Unauthorized("The user or the password is wrong.", challenge=_challenge(request))


def doorman(request: Request) -> Doorman:
    """Return the doorman of the app that answers this request."""
    found = request.app.state.doorman
    assert isinstance(found, Doorman)
    return found


def is_form(request: Request) -> bool:
    """Say whether the body is that of an HTML form."""
    return request.headers.get("content-type", "").startswith(FORMS)


def _to_login(request: Request) -> RedirectResponse:
    """Send a person to the login page, and from there back."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/login?{urlencode({'next': wanted})}", HTTPStatus.SEE_OTHER)


async def _check_token(request: Request, session: Session) -> None:
    token = request.headers.get(CSRF_HEADER, "")
    if not token and is_form(request):
        token = str((await request.form()).get(CSRF_FIELD, ""))
    if not _same(token, session.csrf_token):
        raise Forbidden(f"With a login, changes need its token in the header {CSRF_HEADER}. Reload the page.")


def _basic(request: Request) -> tuple[str, str]:
    """Return name and password; raises ``Unauthorized`` for anything else, which is a mistake and no guess."""
    scheme, _, encoded = request.headers["authorization"].partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user, colon, password = "", "", ""
    if scheme.lower() != "basic" or not colon:
        raise Unauthorized(
            "This takes HTTP Basic with the user maestro, and nothing else.", challenge=_challenge(request)
        )
    return user, password


def _same(given: str, expected: str) -> bool:
    """Compare in constant time, whatever the lengths."""
    digests = (hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, expected))
    return hmac.compare_digest(*digests)


def _is_page(request: Request) -> bool:
    """Say whether a person opens a page: such a request is sent to the login instead of an error."""
    return request.method in SAFE_METHODS and "text/html" in request.headers.get("accept", "")


def _challenge(request: Request) -> str:
    """Ask for name and password, but no script of a page: the browser would pop up its own box for them."""
    return BASIC if request.headers.get("sec-fetch-mode", "navigate") == "navigate" else ""
