"""The two ways in which Slack's events arrive: Socket Mode, or signed requests of the Events API."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl

import structlog
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from connectors import webhooks
from connectors.backoff import backoff_seconds
from connectors.failures import AccountRefused
from connectors.slack.api import SlackBusy, SlackTrouble, call_slack, refused_account, silent_logger
from connectors.slack.config import APP_TOKEN
from connectors.slack.receive import Event
from connectors.webhooks import ask_to_resend, parse_object, read_body
from maestro.domain.errors import MaestroError

EVENTS = "events_api"
COMMANDS = "slash_commands"
INTERACTIVE = "interactive"

log = structlog.get_logger(__name__)

VERSION = "v0"
WINDOW_SECONDS = 300
"""How old a signature may be: an older one may be a recording that somebody plays again."""

LOOK_SECONDS = 0.25
"""How often we look whether the connection holds: of one that was cut the library tells nobody."""
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
"""How long Slack may take to say goodbye."""
REFRESH_SECONDS = 30.0
"""How long the library may take to replace a connection that Slack is about to close."""
HELLO = "hello"

STORE_SECONDS = 2.5
"""How long a message may take to be in the inbox; Slack waits three seconds."""
TIMESTAMP, SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"
FORM = "application/x-www-form-urlencoded"
CHALLENGE = "url_verification"


class Hears(Protocol):
    """What takes in events and commands; whatever it raises, Slack is to send them again."""

    async def event(self, payload: Event) -> None:
        """Take in an event; raises ``AccountRefused`` when it says that there is nothing more to hear."""
        ...

    async def command(self, command: Event) -> str:
        """Take in a command and return what the person is told at once."""
        ...


class HearsPresses(Protocol):
    """What takes in the presses of buttons, by the same rule."""

    async def press(self, payload: Event) -> None:
        """Take in a press."""
        ...


class SlackEventReceiver:
    """Hears for one account; deaf until it is known who we are."""

    def __init__(self, refuse: Callable[[AccountRefused], None]) -> None:
        self._refuse = refuse
        self._inbound: Hears | None = None
        self._presses: HearsPresses | None = None

    def open(self, inbound: Hears, presses: HearsPresses) -> None:
        """Hand what is heard from now on to these."""
        self._inbound, self._presses = inbound, presses

    async def hear(self, kind: str, payload: Event) -> str | None:
        """Take in what Slack says; return what to answer, None when Slack is to say it again."""
        if self._inbound is None or self._presses is None:
            return None
        try:
            if kind == COMMANDS:
                return await self._inbound.command(payload)
            if kind == EVENTS:
                await self._inbound.event(payload)
            if kind == INTERACTIVE:
                await self._presses.press(payload)
        except AccountRefused as refusal:
            self._refuse(refusal)
        except MaestroError as error:
            log.warning("slack.not_taken", error=type(error).__name__, reason=str(error))
            return None
        except Exception:
            # An error of ours costs no message: it is not acknowledged, so Slack sends it again
            # (docs/invariants.md: durable before ack).
            log.exception("slack.not_taken")
            return None
        return ""


def is_signed_by_slack(secret: str, timestamp: str, signature: str, body: bytes, now: float) -> bool:
    """Tell whether Slack signed ``body`` within the last five minutes; takes as long for a wrong one as for another."""
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now - int(timestamp[:20])) > WINDOW_SECONDS:
        return False
    content = b":".join((VERSION.encode(), timestamp.encode(), body))
    return webhooks.is_signed(secret, content, signature, VERSION)


class SocketWatcher(Protocol):
    """Who is told how the connection is doing."""

    def listening(self) -> None:
        """Hear that events come in from now on; those before may be lost."""
        ...

    async def connected(self) -> None:
        """Hear that the connection stands."""
        ...

    async def broken(self, why: str) -> None:
        """Hear that there is none."""
        ...


class SlackSocket:
    """Keeps a connection for as long as it runs.

    The library replaces a connection when Slack asks for it. Any other that ends is given up for a new one with an
    address of its own, because the library tries an address for ever, and one is good for half a minute.
    """

    def __init__(self, web: AsyncWebClient, app_token: str, ears: SlackEventReceiver, watcher: SocketWatcher) -> None:
        self._web = web
        self._app_token = app_token
        self._ears = ears
        self._watcher = watcher
        self._pauses = backoff_seconds()

    async def run(self) -> None:
        """Listen until cancelled; raises ``AccountRefused``."""
        while True:
            try:
                opened = await call_slack(self._web.apps_connections_open(app_token=self._app_token))
            except SlackTrouble as trouble:
                await self._wait(trouble)
            else:
                await self._listen(str(opened["url"]))
                await self._watcher.broken("the connection was lost")
                await asyncio.sleep(next(self._pauses))

    async def _wait(self, trouble: SlackTrouble) -> None:
        refused = refused_account(trouble, APP_TOKEN)
        if refused is not None:
            raise refused
        await self._watcher.broken(str(trouble))
        pause = next(self._pauses)
        await asyncio.sleep(max(pause, trouble.after.total_seconds()) if isinstance(trouble, SlackBusy) else pause)

    async def _listen(self, address: str) -> None:
        """Listen at an address and return when nothing comes from there any more."""
        client = self._client(address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect()  # type: ignore[no-untyped-call]
            await self._lost(client)
        except TimeoutError:
            return
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.disconnect()  # type: ignore[no-untyped-call]
            await client.close()  # type: ignore[no-untyped-call]

    async def _lost(self, client: SocketModeClient) -> None:
        seen = time.monotonic()
        while True:
            if await client.is_connected():
                seen = time.monotonic()
            elif not client.connect_operation_lock.locked() or time.monotonic() - seen > REFRESH_SECONDS:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _client(self, address: str) -> SocketModeClient:
        client = SocketModeClient(
            self._app_token, logger=silent_logger(), web_client=self._web, auto_reconnect_enabled=False
        )
        client.proxy = self._web.proxy
        client.wss_uri = address
        client.message_listeners.append(self._greeted)
        client.socket_mode_request_listeners.append(self._asked)
        return client

    async def _greeted(self, _: AsyncBaseSocketModeClient, message: Event, __: str | None) -> None:
        if message.get("type") == HELLO:
            self._watcher.listening()
            self._pauses = backoff_seconds()
            await self._watcher.connected()

    async def _asked(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Take in what came and acknowledge it: only what is in the inbox (docs/invariants.md: durable before ack)."""
        said = await self._ears.hear(request.type, request.payload)
        if said is not None:
            payload = {"text": said} if said else None
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))


class SlackEndpoint:
    """Takes requests in; anything but 200 lets Slack send them again."""

    def __init__(
        self,
        secret: str,
        ears: SlackEventReceiver,
        *,
        seconds: float = STORE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = secret
        self._ears = ears
        self._seconds = seconds
        self._clock = clock

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Slack posts events, slash commands and presses of buttons; each place takes all of them."""
        return [Route(path, self.receive, methods=["POST"]) for path in ("/events", "/commands", "/interactive")]

    async def receive(self, request: Request) -> Response:
        """Answer one request."""
        body = await read_body(request)
        if isinstance(body, Response):
            return body
        timestamp, signature = request.headers.get(TIMESTAMP, ""), request.headers.get(SIGNATURE, "")
        if not is_signed_by_slack(self._secret, timestamp, signature, body, self._clock()):
            return PlainTextResponse("not signed by Slack", HTTPStatus.UNAUTHORIZED)
        if request.headers.get("content-type", "").startswith(FORM):
            return await self._form(dict(parse_qsl(body.decode("utf-8", "replace"))))
        payload = parse_object(body)
        if isinstance(payload, Response):
            return payload
        if payload.get("type") == CHALLENGE:
            return PlainTextResponse(str(payload.get("challenge") or ""))
        return await self._hear(EVENTS, payload)

    async def _form(self, fields: dict[str, str]) -> Response:
        """Answer a slash command, or what somebody did with a message, which comes as JSON in a field."""
        if "payload" not in fields:
            return await self._hear(COMMANDS, fields)
        payload = parse_object(fields["payload"].encode())
        return payload if isinstance(payload, Response) else await self._hear(INTERACTIVE, payload)

    async def _hear(self, kind: str, payload: dict[str, Any]) -> Response:
        said: str | None = None
        try:
            async with asyncio.timeout(self._seconds):
                said = await self._ears.hear(kind, payload)
        except TimeoutError:
            said = None
        if said is None:
            return ask_to_resend()
        return JSONResponse({"text": said}) if said else Response()
