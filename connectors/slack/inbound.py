"""The intake of Slack's messages and button presses: stored before they are acknowledged, in each channel's order."""

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from connectors.account import AccountConnector, MessageIntake
from connectors.base import ConnectorContext
from connectors.failures import AccountRefused, SendFailure
from connectors.slack.api import call_slack
from connectors.slack.catch_up import SlackCatchUp
from connectors.slack.config import PLATFORM
from connectors.slack.events import COMMANDS, EVENTS, INTERACTIVE
from connectors.slack.receive import TS, Event, SlackBot, author_id, command_in, is_direct, message_in, time_of
from connectors.slack.send import post_to_user
from maestro.domain.errors import Backlogged
from maestro.domain.messages import Address, IncomingMessage

NAME_SECONDS = 1.0
"""Seconds a message waits for its author's name; Slack expects an acknowledgement within three."""
MAX_NAMES = 5_000

BUTTON_EXPIRED = "This button has expired."
BUTTON_OF_OTHERS = "Another user has to answer this."

log = structlog.get_logger(__name__)

APP_REMOVED = "the app was removed from the workspace: install it again and set the new token"
FULL_SECONDS = 5.0
"""Seconds until a missed message is tried again while the inbox is full."""


class SlackUserDirectory:
    """The names of users by id, each requested once; "" if a name cannot be read."""

    def __init__(self, web: AsyncWebClient) -> None:
        self.names: dict[str, str] = {}
        self._web = web
        self._requests: dict[str, asyncio.Task[None]] = {}

    async def look_up(self, user: str) -> None:
        """Request the name of a user unless known; after a timeout the user's next message tries again."""
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


@dataclass(frozen=True)
class SlackPress:
    """A button press: the key of the button's message, the button's number, and an incoming message without content."""

    key: str
    number: int
    message: IncomingMessage


def press_in(payload: Event, bot: SlackBot) -> SlackPress | None:
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
    thread = "" if thread == ts else thread  # a message with replies is the root of its own thread
    message = IncomingMessage(
        id=f"{ts}:{at}",
        address=Address(platform=PLATFORM, account=bot.account, channel=channel, thread=thread),
        user_id=str(user.get("id") or ""),
        user_name=str(user.get("name") or user.get("username") or ""),
        sent_at=time_of(at),
        is_direct=is_direct(channel),
        reply_to=ts,
    )
    return SlackPress(key, int(number), message)


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

    async def take(self, kind: str, payload: Event) -> str:
        """Accept an event, a command or a button press; return the immediate reply to the user or "".

        Raises ``Backlogged`` and the errors of the store.
        """
        if kind == COMMANDS:
            return await self._accept_command(payload)
        if kind == EVENTS:
            await self._accept_event(payload)
        if kind == INTERACTIVE:
            await self._accept_press(payload)
        return ""

    async def _accept_event(self, payload: Event) -> None:
        if payload.get("type") == "app_rate_limited":
            self._catch_up.request_read()  # Slack dropped events above its rate limit
            return
        event = payload.get("event") or {}
        if event.get("type") in frozenset({"app_uninstalled", "tokens_revoked"}):
            self._connector.refuse(AccountRefused(APP_REMOVED))
            return
        channel = str(event.get("channel") or "")
        if not self.is_wanted(channel, event):
            return
        naming = asyncio.create_task(self._users.look_up(author_id(event)))
        async with self._intake.channel_lock(channel):
            try:
                await naming
                await self._catch_up.wait_for_channel(channel)
                await self._accept(channel, event)
            except BaseException:
                self._catch_up.record_loss(channel)
                raise

    async def _accept_command(self, command: Event) -> str:
        message = command_in(command, self._bot, datetime.now(UTC))
        if message is None:
            return "Unknown command; use /stop, /status or /new."
        await self._context.accept(message)
        return ""

    async def _accept_press(self, payload: Event) -> None:
        """Accept a button press; a message about a refused press is visible to the pressing user only."""
        press = press_in(payload, self._bot)
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
        task = asyncio.create_task(self._post_to_user(message, text))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _post_to_user(self, message: IncomingMessage, text: str) -> None:
        try:
            await post_to_user(self._web, message.address, message.user_id, text)
        except SendFailure as failure:
            log.warning("slack.press_not_answered", reason=str(failure))

    def is_wanted(self, channel: str, message: Event) -> bool:
        """Tell whether to accept a message: it is readable, and its channel is enabled."""
        if self.channels and channel not in self.channels and not is_direct(channel):
            return False
        return self._parse_event(channel, message) is not None

    async def take_missed(self, channel: str, message: Event) -> None:
        """Accept a missed message; retry while the inbox is full."""
        await self._users.look_up(author_id(message))
        while True:
            try:
                await self._accept(channel, message)
            except Backlogged:
                await asyncio.sleep(FULL_SECONDS)
            else:
                return

    def _parse_event(self, channel: str, event: Event) -> IncomingMessage | None:
        try:
            return message_in({"type": "message", **event, "channel": channel}, self._bot, self._users.names)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            # A malformed event is skipped: a retry would fail again and block later events.
            log.warning("slack.unreadable", channel=channel, ts=str(event.get("ts")), error=type(error).__name__)
            return None

    async def _accept(self, channel: str, event: Event) -> None:
        message = self._parse_event(channel, event)
        accepted = await self._intake.accept(message) if message is not None else None
        if message is not None and accepted is not None and not message.edit_of:
            await self._catch_up.advance_cursor(message, accepted)
