"""The intake of Slack's events over two transports: each event is stored in its channel's order, then acknowledged."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import structlog
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from connectors.account import (
    BUTTON_EXPIRED,
    BUTTON_OF_OTHERS,
    AccountConnector,
    ButtonPress,
    MessageIntake,
    backoff_seconds,
)
from connectors.base import ConnectorContext
from connectors.failures import AccountRefused, SendFailure
from connectors.slack.api import call_slack, escape_text, silent_logger
from connectors.slack.catch_up import SlackCatchUp
from connectors.slack.platform import APP_TOKEN, PLATFORM
from connectors.slack.receive import (
    TS,
    Event,
    SlackBot,
    find_author_id,
    is_direct,
    message_time,
    parse_message_event,
    parse_slash_command,
)
from connectors.webhooks import WebhookEndpoint, is_signed, parse_object
from maestro.domain.errors import Backlogged, MaestroError
from maestro.domain.messages import Address, IncomingMessage

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

STORE_SECONDS = 2.5
"""Seconds to store a message in the inbox; Slack expects the acknowledgement within three seconds."""
TIMESTAMP, SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"


Take = Callable[[str, Event], Awaitable[str]]
"""Stores an event and returns the immediate reply to the user; after an error Slack sends the event again."""

NAME_SECONDS = 1.0
"""Seconds a message waits for its author's name; Slack expects an acknowledgement within three seconds."""
MAX_NAMES = 5_000


FULL_SECONDS = 5.0
"""Seconds until a missed message is tried again while the inbox is full."""


def is_signed_by_slack(secret: str, timestamp: str, signature: str, body: bytes, now: float) -> bool:
    """Tell whether Slack signed ``body`` within the last five minutes, by a constant-time comparison."""
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now - int(timestamp[:20])) > WINDOW_SECONDS:
        return False
    content = b":".join((VERSION.encode(), timestamp.encode(), body))
    return is_signed(secret, content, signature, VERSION)


class SlackSocket:
    """A Socket Mode connection that is renewed for as long as the connector runs.

    The library replaces a connection when Slack asks for it. After any other disconnection this class requests a new
    address: an address is valid for half a minute, but the library would retry the old address for ever.
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

    async def receive_until_cancelled(self) -> None:
        """Receive events until cancelled; raises ``AccountRefused``."""
        while True:
            await self._receive_from(await self._connector.repeat_until_success(self._request_address, self._pauses))
            await self._connector.report_broken("the connection was lost")
            await asyncio.sleep(next(self._pauses))

    async def _request_address(self) -> str:
        call = self._web.apps_connections_open(app_token=self._app_token)
        return str((await call_slack(call, token=APP_TOKEN))["url"])

    async def _receive_from(self, address: str) -> None:
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
        if message.get("type") == "hello":
            self._pauses = backoff_seconds()
            await self._on_hello()

    async def _on_request(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Acknowledge an event once it is in the inbox (docs/invariants.md: durable before ack)."""
        try:
            text = await self._take(request.type, request.payload)
        except MaestroError as error:
            log.warning("slack.not_taken", error=type(error).__name__, reason=str(error))
        except Exception:
            # Without an acknowledgement Slack repeats the event, so a defect in ``accept_delivery`` loses no message.
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

    async def answer_genuine(self, request: Request, body: bytes) -> Response:
        """Answer a request of Slack; slash commands and button presses arrive as form fields."""
        kind = EVENTS
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            fields = dict(parse_qsl(body.decode("utf-8", "replace")))
            if "payload" not in fields:
                return await self.store_events(COMMANDS, fields)
            kind, body = INTERACTIVE, fields["payload"].encode()
        payload = parse_object(body)
        if kind == EVENTS and payload.get("type") == "url_verification":
            return PlainTextResponse(str(payload.get("challenge") or ""))
        return await self.store_events(kind, payload)


class SlackUserDirectory:
    """The names of users by id, each requested once; "" if a name cannot be read."""

    def __init__(self, web: AsyncWebClient) -> None:
        self.names: dict[str, str] = {}
        self._web = web
        self._requests: dict[str, asyncio.Task[None]] = {}

    async def look_up_name(self, user: str) -> None:
        """Request the name of a user unless known; after ``NAME_SECONDS`` the request goes on in the background."""
        if not user or user in self.names:
            return
        request = self._requests.get(user)
        if request is None:
            request = self._requests[user] = asyncio.create_task(self._request_name(user))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NAME_SECONDS):
                await asyncio.shield(request)

    async def _request_name(self, user_id: str) -> None:
        try:
            answer = await call_slack(self._web.users_info(user=user_id))
            if len(self.names) >= MAX_NAMES:
                self.names.pop(next(iter(self.names)))
            user = answer.get("user") or {}
            profile = user.get("profile") or {}
            names = (profile.get("display_name"), profile.get("real_name"), user.get("real_name"), user.get("name"))
            self.names[user_id] = next((str(name) for name in names if name), "")
        except SendFailure:
            # The message is accepted even if the name of its author cannot be read.
            self.names[user_id] = ""
        finally:
            del self._requests[user_id]


def parse_button_press(payload: Event, bot: SlackBot) -> ButtonPress | None:
    """Return the button press of a payload, None for any other payload.

    A press counts as no mention, so that the press of a user without permission never reaches an agent.
    """
    action = next((action for action in payload.get("actions") or () if action.get("type") == "button"), None)
    if payload.get("type") != "block_actions" or action is None:
        return None
    key, _, number = str(action.get("value") or "").rpartition(":")
    channel, at = str((payload.get("channel") or {}).get("id") or ""), str(action.get("action_ts") or "")
    below, user = payload.get("message") or {}, payload.get("user") or {}
    ts, thread = str(below.get("ts") or ""), str(below.get("thread_ts") or "")
    if not (key and number.isascii() and number.isdecimal() and channel and TS.fullmatch(ts) and TS.fullmatch(at)):
        return None
    thread = "" if thread == ts else thread  # A message with replies is the root of its own thread.
    message = IncomingMessage(
        id=f"{ts}:{at}",
        address=Address(platform=PLATFORM, account=bot.account, channel=channel, thread=thread),
        user_id=str(user.get("id") or ""),
        user_name=str(user.get("name") or user.get("username") or ""),
        sent_at=message_time(at),
        is_direct=is_direct(channel),
        reply_to=ts,
    )
    return ButtonPress(key, int(number), message)


class SlackInbound:
    """The receiver of Slack's events; after an error it sends no acknowledgement, so that Slack repeats the event."""

    def __init__(
        self,
        web: AsyncWebClient,
        connector: AccountConnector,
        context: ConnectorContext,
        bot: SlackBot,
        catch_up: SlackCatchUp,
    ) -> None:
        self._web = web
        self._connector = connector
        self._context = context
        self._bot = bot
        self._catch_up = catch_up
        self._users = SlackUserDirectory(web)
        self._intake = MessageIntake(context)
        self._background: set[asyncio.Task[None]] = set()
        self.channels: frozenset[str] = frozenset()
        """The enabled channels; an empty set enables all channels, and direct messages are always accepted."""

    async def accept_delivery(self, kind: str, payload: Event) -> str:
        """Accept an event, a command or a button press; return the immediate reply to the user or "".

        Raises ``Backlogged`` and the errors of the store.
        """
        if kind == COMMANDS:
            message = parse_slash_command(payload, self._bot, datetime.now(UTC))
            if message is None:
                return "Unknown command; use /stop, /status or /new."
            await self._context.accept(message)
        if kind == EVENTS:
            await self._accept_event(payload)
        if kind == INTERACTIVE:
            await self._accept_press(payload)
        return ""

    async def _accept_event(self, payload: Event) -> None:
        if payload.get("type") == "app_rate_limited":
            self._catch_up.request_history_read()  # Slack dropped events above its rate limit
            return
        event = payload.get("event") or {}
        if event.get("type") in ("app_uninstalled", "tokens_revoked"):
            problem = "the app was removed from the workspace: install it again and set the new token"
            self._connector.end_with_refusal(AccountRefused(problem))
            return
        channel = str(event.get("channel") or "")
        if not self.is_acceptable(channel, event):
            return
        naming = asyncio.create_task(self._users.look_up_name(find_author_id(event)))
        async with self._intake.channel_lock(channel):
            try:
                await naming
                await self._catch_up.wait_for_channel(channel)
                await self._accept_message(channel, event)
            except BaseException:
                self._catch_up.record_lost_message(channel)
                raise

    async def _accept_press(self, payload: Event) -> None:
        """Accept a button press; a message about a refused press is visible to the pressing user only."""
        press = parse_button_press(payload, self._bot)
        if press is None:
            return
        content = await self._context.pressed(press.key, press.number)
        if content is None:
            self._reply_later(press.message, BUTTON_EXPIRED)
            return
        accepted = await self._intake.accept(press.message.model_copy(update={"content": content}))
        if accepted is not None and accepted.ignored:
            self._reply_later(press.message, BUTTON_OF_OTHERS)

    def _reply_later(self, message: IncomingMessage, text: str) -> None:
        """Reply to a button press in the background: Slack expects its acknowledgement within three seconds."""

        async def reply() -> None:
            try:
                channel, thread = message.address.channel, message.address.thread or None
                await call_slack(
                    self._web.chat_postEphemeral(
                        channel=channel, user=message.user_id, text=escape_text(text), thread_ts=thread
                    )
                )
            except SendFailure as failure:
                log.warning("slack.press_not_answered", reason=str(failure))

        task = asyncio.create_task(reply())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def is_acceptable(self, channel: str, message: Event) -> bool:
        """Tell whether to accept a message: it is readable, and its channel is enabled."""
        if self.channels and channel not in self.channels and not is_direct(channel):
            return False
        return self._parse_event(channel, message) is not None

    async def accept_missed(self, channel: str, message: Event) -> None:
        """Accept a missed message; retry while the inbox is full."""
        await self._users.look_up_name(find_author_id(message))
        while True:
            try:
                await self._accept_message(channel, message)
            except Backlogged:
                await asyncio.sleep(FULL_SECONDS)
            else:
                return

    def _parse_event(self, channel: str, event: Event) -> IncomingMessage | None:
        try:
            return parse_message_event({"type": "message", **event, "channel": channel}, self._bot, self._users.names)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            # A malformed event is skipped: a retry would fail again and block later events.
            log.warning("slack.unreadable", channel=channel, ts=str(event.get("ts")), error=type(error).__name__)
            return None

    async def _accept_message(self, channel: str, event: Event) -> None:
        message = self._parse_event(channel, event)
        accepted = await self._intake.accept(message) if message is not None else None
        if message is not None and accepted is not None and not message.edit_of:
            await self._catch_up.advance_cursor(message, accepted)
