"""Keeps foreign web pages out: the Host and Origin of every request, and CORS for the pages that are ours."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connectors.web.config import WebConfig
from maestro.domain.errors import Forbidden
from maestro.domain.hosts import DEFAULT_PORTS, KnownHosts, parse_origin

SIGNED = "/platforms/"
"""Webhooks of platforms arrive here under a public name; their signature is their guard."""


class Guard:
    """ASGI middleware that answers 403 before anything else sees a request from a page that is not ours.

    The Host keeps out names that an attacker's DNS points at this machine, and a page of another site cannot hide its
    Origin.
    """

    def __init__(self, app: ASGIApp, config: WebConfig) -> None:
        self._app = app
        self._hosts = KnownHosts.of((config.host, *config.allowed_hosts))
        self._origins = frozenset(map(parse_origin, (*config.allowed_origins, *config.dashboard_origins)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or scope["path"].startswith(SIGNED):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if not self._hosts.admit(headers.getlist("host")) or not self._origin_allowed(headers, origin):
            refusal = Forbidden("This Host or Origin is not allowed; see web.allowedOrigins.")
            await _denied(refusal)(scope, receive, send)
        elif scope["type"] == "http" and origin is not None:
            await self._with_cors(scope, receive, send, origin)
        else:
            await self._app(scope, receive, send)

    def _origin_allowed(self, headers: Headers, origin: str | None) -> bool:
        if origin is None:
            return True
        if len(headers.getlist("origin")) != 1:
            return False
        parsed = parse_origin(origin)
        scheme = parsed[0]
        if scheme not in DEFAULT_PORTS:
            return False
        return parsed in self._origins or parsed == parse_origin(f"{scheme}://{headers['host']}")

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
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": "Authorization, Content-Type",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }


def _denied(error: Forbidden) -> JSONResponse:
    return JSONResponse({"error": type(error).__name__, "message": str(error)}, status_code=403)
