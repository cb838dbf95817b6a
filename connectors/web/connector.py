"""The web connector: WebSocket chat, one-shot HTTP messages and uploads on one port."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, WebSocketRoute
from starlette.websockets import WebSocket

from connectors.base import Capabilities, ConnectorContext, ConnectorState, Idempotency, LengthUnit, PermanentFetch
from connectors.web.config import MAX_BUTTONS, MAX_CHUNK, MAX_FILE_BYTES, PLATFORM, WebConfig
from connectors.web.endpoints import Endpoints
from connectors.web.frames import Hub
from connectors.web.guard import Guard
from connectors.web.identity import Doorman, ResumeTokens
from connectors.web.session import House, Reception, Session
from connectors.webhooks import Webhooks
from maestro.domain.errors import MaestroError, NotFound
from maestro.domain.messages import DEFAULT_ACCOUNT, Address, Attachment, OutgoingMessage, Receipt
from maestro.serving import Place, Server, config, listen, serve_until_cancelled

PING_SECONDS = 20.0


def utc_now() -> datetime:
    """Return the time of day, in UTC."""
    return datetime.now(UTC)


class WebConnector:
    """One server on one port; platform "web", account "default".

    ``webhooks`` are the routes of other connectors, served under ``/platforms`` and guarded by their own signatures.
    """

    platform = PLATFORM
    account = DEFAULT_ACCOUNT
    token_digest = ""

    def __init__(
        self,
        config: WebConfig,
        context: ConnectorContext,
        *,
        clock: Callable[[], datetime] = utc_now,
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
        self.webhooks = Webhooks()
        self._hub = Hub()
        self._house = House(
            config=config,
            context=context,
            tokens=tokens,
            doorman=Doorman(config, context, tokens, clock),
            reception=Reception(context, clock),
            hub=self._hub,
        )
        self._settled = asyncio.Event()
        self._failure: MaestroError | None = None
        self._port = config.port

    @property
    def port(self) -> int:
        """The port in use; differs from the configured one only where that is 0."""
        return self._port

    @property
    def listening(self) -> bool:
        """Whether the port accepts connections."""
        return self._settled.is_set() and self._failure is None

    async def started(self) -> None:
        """Return once the port accepts connections; raises what ``run`` raises if it never will."""
        await self._settled.wait()
        if self._failure is not None:
            raise self._failure

    async def run(self) -> None:
        """Serve until cancelled; raises ``PortTaken`` or ``ConfigurationError`` when the port cannot be had."""
        await self._context.report(ConnectorState.STARTING)
        try:
            sockets = await asyncio.to_thread(listen, self._place())
        except MaestroError as error:
            self._failure = error
            try:
                # On record before anybody hears of it: who does may end this process at once.
                await self._context.report(ConnectorState.FAILED, str(error))
            finally:
                self._settled.set()
            raise
        self._port = sockets[0].getsockname()[1]
        options = config(
            self._app(),
            self._config.connections,
            ws_max_size=self._config.max_frame_bytes,  # a larger frame closes its socket with 1009
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PING_SECONDS,
            ws_per_message_deflate=False,  # no zip bombs, and no memory per idle socket
        )
        try:
            await serve_until_cancelled(Server(options, self._announce), sockets)
        finally:
            await self._context.report(ConnectorState.STOPPED)

    def stop_accepting(self) -> None:
        """Refuse new messages from now on; sockets stay and receive what is still being answered (drain)."""
        self._house.reception.close()

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Hand a chunk to every socket of its channel; who is away gets it on resuming. Never fails."""
        self._hub.push(message)
        return Receipt(platform_message_id=str(message.id))

    async def typing(self, address: Address) -> None:
        """Show the channel once that an answer is being written."""
        self._hub.typing(address.channel)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Copy a kept upload; raises ``PermanentFetch`` when it is there no more."""
        try:
            kept = await self._context.upload_file(attachment.id)
            return await asyncio.to_thread(shutil.copyfile, kept, folder / "upload")
        except (NotFound, FileNotFoundError) as error:
            raise PermanentFetch(f"the upload {attachment.id} is not kept any more") from error

    def routes(self) -> Sequence[BaseRoute]:
        """Return all routes of the port: the socket at ``/``, HTTP, and the platforms' webhooks."""
        webhooks = Mount("/platforms", app=self.webhooks.router)
        return [WebSocketRoute("/", self._socket), *Endpoints(self._house).routes(), webhooks]

    def _place(self) -> Place:
        return Place(self._config.host, self._config.port, section="web", option="--web-port")

    async def _announce(self) -> None:
        self._settled.set()
        await self._context.report(ConnectorState.RUNNING, f"port {self._port}")

    async def _socket(self, socket: WebSocket) -> None:
        await Session(self._house, socket).serve()

    def _app(self) -> Starlette:
        return Starlette(routes=self.routes(), middleware=[Middleware(Guard, config=self._config)])
