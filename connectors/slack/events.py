"""The two transports of Slack's events: Socket Mode, and signed requests of the Events API."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

import structlog
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from connectors.account import AccountConnector, backoff_seconds
from connectors.slack.api import call_slack, silent_logger
from connectors.slack.config import APP_TOKEN
from connectors.slack.receive import Event
from connectors.webhooks import WebhookEndpoint, is_signed, parse_object
from maestro.domain.errors import MaestroError

EVENTS = "events_api"
COMMANDS = "slash_commands"
INTERACTIVE = "interactive"

log = structlog.get_logger(__name__)

VERSION = "v0"
WINDOW_SECONDS = 300
"""The greatest age of a signed request in seconds: an older request may be a replay attack."""

LOOK_SECONDS = 0.25
"""Seconds between two checks of the connection: the library does not report a broken connection."""
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
"""Seconds to wait for Slack to close the connection."""
REFRESH_SECONDS = 30.0
"""Seconds the library may take to replace a connection that Slack is about to close."""
HELLO = "hello"

STORE_SECONDS = 2.5
"""Seconds to store a message in the inbox; Slack expects the acknowledgement within three."""
TIMESTAMP, SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"
FORM = "application/x-www-form-urlencoded"


Take = Callable[[str, Event], Awaitable[str]]
"""Stores an event and returns the immediate reply to the user; after an error Slack sends the event again."""


def is_signed_by_slack(secret: str, timestamp: str, signature: str, body: bytes, now: float) -> bool:
    """Tell whether Slack signed ``body`` within the last five minutes, by a constant-time comparison."""
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now - int(timestamp[:20])) > WINDOW_SECONDS:
        return False
    content = b":".join((VERSION.encode(), timestamp.encode(), body))
    return is_signed(secret, content, signature, VERSION)


class SlackSocket:
    """A Socket Mode connection that is renewed for as long as the connector runs.

    The library replaces a connection when Slack asks for it. After any other end this class requests a new address,
    because the library would retry the old address without end, and an address is valid for half a minute.
    """

    def __init__(
        self,
        web: AsyncWebClient,
        app_token: str,
        connector: AccountConnector,
        take: Take,
        on_hello: Callable[[], Awaitable[None]],
    ) -> None:
        """``on_hello`` is called after each new connection, because earlier events may be lost."""
        self._web = web
        self._app_token = app_token
        self._connector = connector
        self._take = take
        self._on_hello = on_hello
        self._pauses = backoff_seconds()

    async def run(self) -> None:
        """Receive events until cancelled; raises ``AccountRefused``."""
        while True:
            await self._receive(await self._connector.retry(self._request_address, self._pauses))
            await self._connector.report_broken("the connection was lost")
            await asyncio.sleep(next(self._pauses))

    async def _request_address(self) -> str:
        call = self._web.apps_connections_open(app_token=self._app_token)
        return str((await call_slack(call, token=APP_TOKEN))["url"])

    async def _receive(self, address: str) -> None:
        """Receive from an address; return when its connection has ended."""
        client = self._create_client(address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect()  # type: ignore[no-untyped-call]
            await self._wait_for_loss(client)
        except TimeoutError:
            return
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.disconnect()  # type: ignore[no-untyped-call]
            await client.close()  # type: ignore[no-untyped-call]

    async def _wait_for_loss(self, client: SocketModeClient) -> None:
        seen = time.monotonic()
        while True:
            if await client.is_connected():
                seen = time.monotonic()
            elif not client.connect_operation_lock.locked() or time.monotonic() - seen > REFRESH_SECONDS:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _create_client(self, address: str) -> SocketModeClient:
        client = SocketModeClient(
            self._app_token, logger=silent_logger(), web_client=self._web, auto_reconnect_enabled=False
        )
        client.proxy = self._web.proxy
        client.wss_uri = address
        client.message_listeners.append(self._on_message)
        client.socket_mode_request_listeners.append(self._on_request)
        return client

    async def _on_message(self, _: AsyncBaseSocketModeClient, message: Event, __: str | None) -> None:
        if message.get("type") == HELLO:
            self._pauses = backoff_seconds()
            await self._on_hello()

    async def _on_request(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Acknowledge an event once it is in the inbox (docs/invariants.md: durable before ack)."""
        try:
            text = await self._take(request.type, request.payload)
        except MaestroError as error:
            log.warning("slack.not_taken", error=type(error).__name__, reason=str(error))
        except Exception:
            # Without an acknowledgement Slack sends the event again, so a defect in ``take`` loses no message.
            log.exception("slack.not_taken")
        else:
            payload = {"text": text} if text else None
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))


class SlackEndpoint(WebhookEndpoint):
    """The endpoint for Slack's events, slash commands and button presses; each path accepts all three."""

    paths = ("/events", "/commands", "/interactive")

    def __init__(self, secret: str, *, seconds: float = STORE_SECONDS) -> None:
        super().__init__("Slack", seconds)
        self._secret = secret

    def is_genuine(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Tell whether Slack signed the request within the last five minutes."""
        return is_signed_by_slack(
            self._secret, headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, ""), body, time.time()
        )

    async def answer(self, request: Request, body: bytes) -> Response:
        """Answer a request of Slack; slash commands and button presses arrive as form fields."""
        kind = EVENTS
        if request.headers.get("content-type", "").startswith(FORM):
            fields = dict(parse_qsl(body.decode("utf-8", "replace")))
            if "payload" not in fields:
                return await self.store(COMMANDS, fields)
            kind, body = INTERACTIVE, fields["payload"].encode()
        payload = parse_object(body)
        if isinstance(payload, Response):
            return payload
        if kind == EVENTS and payload.get("type") == "url_verification":
            return PlainTextResponse(str(payload.get("challenge") or ""))
        return await self.store(kind, payload)
