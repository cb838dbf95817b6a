"""The web connector: WebSocket chat and HTTP on one port, protected against requests of foreign web pages."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from connectors.base import Capabilities, ConnectorContext, ConnectorState, Idempotency, LengthUnit
from connectors.failures import PermanentFetch
from connectors.web.config import MAX_BUTTONS, MAX_CHUNK, MAX_FILE_BYTES, PLATFORM, WebConfig
from connectors.web.endpoints import Endpoints
from connectors.web.frames import SocketHub
from connectors.web.identity import ResumeTokens, WebAuthenticator
from connectors.web.session import WebIntake, WebServices, WebSession
from connectors.webhooks import PlatformWebhooks
from maestro.domain.errors import Forbidden, MaestroError, NotFound
from maestro.domain.messages import DEFAULT_ACCOUNT, Address, Attachment, OutgoingMessage, Receipt
from maestro.domain.network import DEFAULT_PORTS, KnownHosts, parse_origin
from maestro.serving import ListenAddress, Server, listen_on_address, serve_until_cancelled, uvicorn_config

PING_SECONDS = 20.0


class OriginGuard:
    """ASGI middleware that rejects requests from foreign web pages with 403 before any other code handles them.

    The check of the Host header stops requests under names that an attacker's DNS points at this machine; the check of
    the Origin header stops pages of other sites.
    """

    def __init__(self, app: ASGIApp, config: WebConfig) -> None:
        self._app = app
        self._hosts = KnownHosts((config.host, *config.allowed_hosts))
        self._origins = frozenset(map(parse_origin, (*config.allowed_origins, *config.dashboard_origins)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an allowed request to the app, or answer 403."""
        # The webhooks of platforms arrive under any host name and are checked by signature.
        if scope["type"] not in ("http", "websocket") or scope["path"].startswith("/platforms/"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if not self._hosts.accepts_hosts(headers.getlist("host")) or not self._is_origin_allowed(headers, origin):
            text = "This Host or Origin is not allowed; see web.allowedOrigins."
            denial = JSONResponse({"error": Forbidden.__name__, "message": text}, status_code=403)
            await denial(scope, receive, send)
        elif scope["type"] == "http" and origin is not None:
            await self._answer_with_cors(scope, receive, send, origin)
        else:
            await self._app(scope, receive, send)

    def _is_origin_allowed(self, headers: Headers, origin: str | None) -> bool:
        if origin is None:
            return True
        if len(headers.getlist("origin")) != 1:
            return False
        parsed = parse_origin(origin)
        scheme = parsed[0]
        return scheme in DEFAULT_PORTS and (
            parsed in self._origins or parsed == parse_origin(f"{scheme}://{headers['host']}")
        )

    async def _answer_with_cors(self, scope: Scope, receive: Receive, send: Send, origin: str) -> None:
        if scope["method"] == "OPTIONS":
            preflight = Response(status_code=204, headers=_cors_headers(origin))
            await preflight(scope, receive, send)
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_cors_headers(origin))
            await send(message)

        await self._app(scope, receive, send_with_cors)


def _cors_headers(origin: str) -> dict[str, str]:
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": "Authorization, Content-Type",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }


class WebConnector:
    """The web connector: one server on one port, platform "web", account "default".

    ``webhooks`` are the routes of other connectors, served under ``/platforms`` and guarded by their own signatures.
    """

    platform = PLATFORM
    account = DEFAULT_ACCOUNT
    token_digest = ""

    def __init__(
        self, config: WebConfig, context: ConnectorContext, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        tokens = ResumeTokens(config, clock)
        self.capabilities = Capabilities(
            max_length=MAX_CHUNK,
            unit=LengthUnit.CODE_POINTS,
            typing_interval=config.typing_interval,
            idempotency=Idempotency.NATIVE,
            max_file_bytes=MAX_FILE_BYTES,
            max_buttons=MAX_BUTTONS,
        )
        self._config = config
        self._context = context
        self.webhooks = PlatformWebhooks()
        self._hub = SocketHub()
        self._services = WebServices(
            config=config,
            context=context,
            tokens=tokens,
            authenticator=WebAuthenticator(config, context, tokens, clock),
            intake=WebIntake(context, clock),
            hub=self._hub,
        )
        self._settled = asyncio.Event()
        self._failure: MaestroError | None = None
        self.port = config.port
        """The port in use; it differs from the configured port only if the configured port is 0."""

    @property
    def accepts_connections(self) -> bool:
        """Whether the port accepts connections."""
        return self.webhooks.is_open

    async def wait_until_started(self) -> None:
        """Return once the port accepts connections; raise the error of ``run`` if it cannot."""
        await self._settled.wait()
        if self._failure is not None:
            raise self._failure

    async def run(self) -> None:
        """Serve until cancelled; raises ``PortTaken`` or ``ConfigurationError`` when the port is not available."""
        await self._context.report(ConnectorState.STARTING)
        try:
            address = ListenAddress(self._config.host, self._config.port, section="web", option="--web-port")
            sockets = await asyncio.to_thread(listen_on_address, address)
        except MaestroError as error:
            self._failure = error
            try:
                # The failure is recorded before it is raised, because the caller may end this process at once.
                await self._context.report(ConnectorState.FAILED, str(error))
            finally:
                self._settled.set()
            raise
        self.port = sockets[0].getsockname()[1]
        options = uvicorn_config(
            Starlette(routes=self.routes(), middleware=[Middleware(OriginGuard, config=self._config)]),
            self._config.connections,
            ws_max_size=self._config.max_frame_bytes,  # A larger frame closes the WebSocket with code 1009.
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PING_SECONDS,
            ws_per_message_deflate=False,  # Compression would allow zip bombs and need memory per socket.
        )
        try:
            await serve_until_cancelled(Server(options, self._report_running), sockets)
        finally:
            self.webhooks.close()
            await self._context.report(ConnectorState.STOPPED)

    def stop_accepting(self) -> None:
        """Refuse new messages during a drain; open sockets still receive the answers to earlier messages."""
        self._services.intake.stop_accepting()

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Pass a chunk to the sockets of its channel; a disconnected client gets it on reconnecting. Never fails."""
        self._hub.push_delivery(message)
        return Receipt(platform_message_id=str(message.id))

    async def typing(self, address: Address) -> None:
        self._hub.show_typing(address.channel)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Copy a stored upload; raises ``PermanentFetch`` when it no longer exists."""
        try:
            stored = await self._context.upload_file(attachment.id)
            return await asyncio.to_thread(shutil.copyfile, stored, folder / "upload")
        except (NotFound, FileNotFoundError) as error:
            raise PermanentFetch(f"the upload {attachment.id} was deleted from Maestro's storage") from error

    def routes(self) -> Sequence[BaseRoute]:
        """Return all routes of the port: the WebSocket at ``/``, the HTTP endpoints, and the platforms' webhooks."""
        webhooks = Mount("/platforms", app=self.webhooks.router)
        return [WebSocketRoute("/", self._serve_socket), *Endpoints(self._services).routes(), webhooks]

    async def _report_running(self) -> None:
        self.webhooks.open()
        self._settled.set()
        await self._context.report(ConnectorState.RUNNING, f"port {self.port}")

    async def _serve_socket(self, socket: WebSocket) -> None:
        await WebSession(self._services, socket).serve_client()
