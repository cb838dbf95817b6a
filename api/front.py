"""The ASGI middleware in front of the app: host check, origin check, body size limit and security headers."""

from http import HTTPStatus

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import UnknownHost, error_response, unexpected_error_response
from api.parts import ApiParts
from maestro.domain.errors import Forbidden, MaestroError
from maestro.domain.network import CODEC_PATH, DEFAULT_PORTS, KnownHosts, RequestOrigin, host_name, parse_origin
from maestro.store.users.audit import set_origin

TRUSTED_ORIGIN = "maestro.trusted_origin"
"""The key of the ASGI scope that marks a request of such a page, whose origin was checked."""

SCHEMES = {"http": ("ws", "http"), "https": ("wss", "https")}
"""The URL schemes of the web connector for sockets and uploads, by the URL scheme of the page."""

log = structlog.get_logger(__name__)

MAX_BODY = 1024 * 1024
"""The largest accepted request body, in bytes; larger uploads are sent to the web connector instead."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITE = frozenset({"same-origin", "none"})
"""The header values of Sec-Fetch-Site for requests from a page of the dashboard, or from the address bar."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src {connect}; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers would then send "Origin: null" with the dashboard's own forms.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def connector_origins(parts: ApiParts, scheme: str, host: str) -> tuple[str, ...]:
    """Return the web connector's origins for sockets and uploads; none if the web connector does not run.

    ``scheme`` and ``host`` are those of the dashboard's address in the browser.
    """
    name = host_name(host)
    if not name or not parts.web_port:
        return ()
    written = f"[{name}]" if ":" in name else name
    return tuple(f"{kind}://{written}:{parts.web_port}" for kind in SCHEMES[scheme])


class FrontDoor:
    """The ASGI middleware that checks every request before the app and adds security headers to every response."""

    def __init__(self, app: ASGIApp, parts: ApiParts) -> None:
        self._app = app
        self._parts = parts
        self._hosts = KnownHosts(parts.guard.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request, or pass it on and add the security headers to its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        peer = RequestOrigin(scope["client"][0] if scope.get("client") else "", scope["scheme"])
        origin = self._parts.guard.trusted_proxies.find_origin(
            peer, headers.getlist("x-forwarded-for"), headers.getlist("x-forwarded-proto")
        )
        # From here on, the request has the address of the client instead of the address of the proxy.
        scope = {**scope, "client": (origin.address, 0), "scheme": origin.scheme}
        with set_origin(origin.address):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._comes_from_temporal_ui(scope["path"], headers):
            scope[TRUSTED_ORIGIN] = True
        refusal = self._find_refusal(scope, headers)
        connector = () if refusal else connector_origins(self._parts, scope["scheme"], headers["host"])
        sender = _HeaderSender(send, POLICY.format(connect=" ".join(("'self'", *connector))), scope["scheme"])
        if refusal is not None:
            await error_response(refusal)(scope, receive, sender)
            return
        try:
            # Webhook requests have their own size limit.
            is_webhook = scope["path"].startswith("/hooks/")
            max_bytes = self._parts.hooks.settings().max_body_bytes if is_webhook else MAX_BODY
            await self._app(scope, _LimitedReceiver(receive, max_bytes), sender)
        # Every error is answered as JSON; the traceback goes to the log only, never into the response.
        except Exception:
            log.exception("a request failed", method=scope["method"], path=scope["path"])
            if not sender.started:
                await unexpected_error_response()(scope, receive, sender)

    def _comes_from_temporal_ui(self, path: str, headers: Headers) -> bool:
        payloads = self._parts.payloads
        return path.startswith(f"{CODEC_PATH}/") and payloads is not None and headers.get("origin") in payloads.origins

    def _find_refusal(self, scope: Scope, headers: Headers) -> MaestroError | None:
        if not self._hosts.accepts_hosts(headers.getlist("host")):
            return UnknownHost(
                "Maestro does not answer under this host name. Add it to webui.allowedHosts, or use http://localhost."
            )
        if scope["method"] in SAFE_METHODS or TRUSTED_ORIGIN in scope:
            return None
        if not _comes_from_own_page(headers):
            return Forbidden("This request comes from a page of another site, so it may not change anything here.")
        return None


def _comes_from_own_page(headers: Headers) -> bool:
    """Tell whether the request comes from a page of the dashboard, or from no page at all.

    A page of another site could send requests with the Basic credentials that the browser caches, so the origin is
    checked. Programs other than browsers send neither ``Sec-Fetch-Site`` nor ``Origin``.
    """
    if headers.get("sec-fetch-site", "none") not in OWN_SITE:
        return False
    for origin in headers.getlist("origin"):
        # The Host header has no scheme, and a proxy may have terminated TLS, so the origin's scheme is assumed.
        scheme, name, port = parse_origin(origin)
        if scheme not in DEFAULT_PORTS or (scheme, name, port) != parse_origin(f"{scheme}://{headers['host']}"):
            return False
    return True


class _LimitedReceiver:
    """A receiver of a request body, which raises an error above a size limit in bytes."""

    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._bytes = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._max_bytes:
            # An HTTPException, because FastAPI would report any other error as a body that cannot be parsed.
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A body may have at most {self._max_bytes} bytes."
            )
        return message


class _HeaderSender:
    """A sender of a response that adds the security headers, and records whether the response has begun."""

    def __init__(self, send: Send, policy: str, scheme: str) -> None:
        self._send = send
        self._policy = policy
        self._secure = scheme == "https"
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["Content-Security-Policy"] = self._policy
            if self._secure:
                # Without includeSubDomains, because subdomains may belong to other servers.
                headers["Strict-Transport-Security"] = "max-age=31536000"
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)
