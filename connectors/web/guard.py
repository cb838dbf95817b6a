"""Keeps foreign web pages out: the Host and Origin of every request, and CORS for the pages that are ours."""

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connectors.web.config import WebConfig
from maestro.domain.errors import Forbidden

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
DEFAULT_PORTS = {"http": 80, "https": 443}
SIGNED = "/platforms/"
"""Webhooks of platforms arrive here under a public name; their signature is their guard."""

Origin = tuple[str, str, int | None]


class Guard:
    """ASGI middleware that answers 403 before anything else sees a request from a page that is not ours.

    A name that an attacker's DNS points at this machine (DNS rebinding) is not in the Host list, and a page of another
    site cannot hide its Origin. Where the bind is a wildcard, plain addresses pass too: rebinding needs a name.
    """

    def __init__(self, app: ASGIApp, config: WebConfig) -> None:
        self._app = app
        self._hosts = LOCAL_NAMES | {name.lower() for name in (config.host, *config.allowed_hosts)}
        self._any_address = config.host in WILDCARDS
        self._origins = _origins((*config.allowed_origins, *config.dashboard_origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or scope["path"].startswith(SIGNED):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if not self._host_allowed(headers) or not self._origin_allowed(headers, origin):
            refusal = Forbidden("This Host or Origin is not allowed; see web.allowedOrigins.")
            await _denied(refusal)(scope, receive, send)
        elif scope["type"] == "http" and origin is not None:
            await self._with_cors(scope, receive, send, origin)
        else:
            await self._app(scope, receive, send)

    def _host_allowed(self, headers: Headers) -> bool:
        names = headers.getlist("host")
        if len(names) != 1:
            return False
        host = _host_name(names[0])
        return host in self._hosts or (self._any_address and _is_address(host))

    def _origin_allowed(self, headers: Headers, origin: str | None) -> bool:
        if origin is None:
            return True
        if len(headers.getlist("origin")) != 1:
            return False
        parsed = _parse(origin)
        scheme = parsed[0]
        if scheme not in DEFAULT_PORTS:
            return False
        return parsed in self._origins or parsed == _parse(f"{scheme}://{headers['host']}")

    async def _with_cors(self, scope: Scope, receive: Receive, send: Send, origin: str) -> None:
        if scope["method"] == "OPTIONS":
            preflight = Response(status_code=204, headers=_cors(origin))
            await preflight(scope, receive, send)
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_cors(origin))
            await send(message)

        await self._app(scope, receive, send_with_cors)


def _cors(origin: str) -> dict[str, str]:
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": "Authorization, Content-Type",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }


def _denied(error: Forbidden) -> JSONResponse:
    return JSONResponse({"error": type(error).__name__, "message": str(error)}, status_code=403)


def _origins(values: Iterable[str]) -> frozenset[Origin]:
    return frozenset(_parse(value) for value in values)


def _parse(origin: str) -> Origin:
    """Return scheme, host and port of an origin; empty parts for ``null`` and everything malformed."""
    try:
        parts = urlsplit(origin.lower())
        return parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


def _host_name(value: str) -> str:
    """Return the name in a Host header, its port left out; empty when it is malformed."""
    if any(character in value for character in "/?#@\\"):
        return ""
    return _parse(f"http://{value}")[1]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
