"""Incoming messages and buttons of Slack: committed before they are acknowledged, in the order of each channel."""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from weakref import WeakValueDictionary

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from connectors.base import ConnectorContext
from connectors.failures import AccountRefused
from connectors.slack.api import Fields, SlackTrouble, call_slack
from connectors.slack.catch_up import SlackCatchUp
from connectors.slack.config import PLATFORM
from connectors.slack.receive import TS, Event, SlackBot, author, command_in, is_direct, message_in, time_of
from maestro.domain.errors import Backlogged, InvalidMessage
from maestro.domain.messages import Address, IncomingMessage

NAME_SECONDS = 1.0
"""Seconds a message waits for its author's name: Slack waits three for our word that we have it."""
MAX_NAMES = 5_000

BLOCK_ACTIONS = "block_actions"
BUTTON_EXPIRED = "This button is for nothing any more."
BUTTON_OF_OTHERS = "This is for somebody else to answer."

log = structlog.get_logger(__name__)

KNOWN_COMMANDS = "I know /stop, /status and /new."
REMOVED = frozenset({"app_uninstalled", "tokens_revoked"})
RATE_LIMITED = "app_rate_limited"
FULL_SECONDS = 5.0
"""When a message that was found is tried again while the inbox is full."""


class SlackUserDirectory:
    """Names by id, looked up once; a person whose name cannot be had has none."""

    def __init__(self, web: AsyncWebClient) -> None:
        self._web = web
        self._names: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    @property
    def names(self) -> Mapping[str, str]:
        """The names that are known."""
        return self._names

    async def meet(self, user: str) -> None:
        """Learn the name of a person, unless that takes too long: then their next message has it."""
        if not user or user in self._names:
            return
        asking = self._asking.get(user)
        if asking is None:
            asking = self._asking[user] = asyncio.create_task(self._ask(user))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NAME_SECONDS):
                await asyncio.shield(asking)

    async def _ask(self, user: str) -> None:
        try:
            answer = await call_slack(self._web.users_info(user=user))
            if len(self._names) >= MAX_NAMES:
                self._names.pop(next(iter(self._names)))
            self._names[user] = name_of(answer.get("user") or {})
        except SlackTrouble:
            # A message without a name is still a message.
            self._names[user] = ""
        finally:
            del self._asking[user]


def name_of(user: Fields) -> str:
    """Return what a person is called in the workspace."""
    profile = user.get("profile") or {}
    found = (profile.get("display_name"), profile.get("real_name"), user.get("real_name"), user.get("name"))
    return next((str(name) for name in found if name), "")


@dataclass(frozen=True)
class SlackPress:
    """A button that somebody pressed: the key and the number it has, and the message that it says, still empty."""

    key: str
    number: int
    message: IncomingMessage


class Whispers(Protocol):
    """Who tells a person something that nobody else sees."""

    def __call__(self, address: Address, user_id: str, text: str) -> Awaitable[None]:
        """Tell it; raises a ``SlackTrouble``."""
        ...


def press_in(payload: Event, us: SlackBot) -> SlackPress | None:
    """Return the press that Slack tells of, None for what is none of a button of ours.

    It mentions nobody: from somebody who was not asked it is no line for an agent.
    """
    action = next((one for one in payload.get("actions") or () if one.get("type") == "button"), None)
    if payload.get("type") != BLOCK_ACTIONS or action is None:
        return None
    key, _, number = str(action.get("value") or "").rpartition(":")
    channel, at = str((payload.get("channel") or {}).get("id") or ""), str(action.get("action_ts") or "")
    below, user = payload.get("message") or {}, payload.get("user") or {}
    ts = str(below.get("ts") or "")
    if not (key and number.isascii() and number.isdecimal() and channel and TS.fullmatch(ts) and TS.fullmatch(at)):
        return None
    message = IncomingMessage(
        id=f"{ts}:{at}",
        address=Address(platform=PLATFORM, account=us.account, channel=channel, thread=_thread_of(below, ts)),
        user_id=str(user.get("id") or ""),
        user_name=str(user.get("name") or user.get("username") or ""),
        sent_at=time_of(at),
        is_direct=is_direct(channel),
        reply_to=ts,
    )
    return SlackPress(key, int(number), message)


class SlackButtons:
    """Hands presses to Maestro; what it raises means that Slack is not to be told that we have them."""

    def __init__(self, context: ConnectorContext, us: SlackBot, whisper: Whispers) -> None:
        self._context = context
        self._us = us
        self._whisper = whisper
        self._whispering: set[asyncio.Task[None]] = set()

    async def press(self, payload: Event) -> None:
        """Take in a press; who pressed what is for nothing any more, or for somebody else, alone sees so."""
        press = press_in(payload, self._us)
        if press is None:
            return
        says = await self._context.pressed(press.key, press.number)
        if says is None:
            self._tell(press.message, BUTTON_EXPIRED)
            return
        try:
            accepted = await self._context.accept(press.message.model_copy(update={"content": says}))
        except InvalidMessage as error:
            log.info("slack.press_refused", channel=press.message.address.channel, reason=str(error))
            return
        if accepted.ignored:
            self._tell(press.message, BUTTON_OF_OTHERS)

    def _tell(self, message: IncomingMessage, text: str) -> None:
        """Say it in the background: Slack waits three seconds for its own answer."""
        task = asyncio.create_task(self._say(message, text))
        self._whispering.add(task)
        task.add_done_callback(self._whispering.discard)

    async def _say(self, message: IncomingMessage, text: str) -> None:
        try:
            await self._whisper(message.address, message.user_id, text)
        except SlackTrouble as trouble:
            log.warning("slack.press_not_answered", reason=str(trouble))


def _thread_of(below: Event, ts: str) -> str:
    """Return the thread in which a message was posted; one with replies names itself."""
    thread = str(below.get("thread_ts") or "")
    return thread if thread != ts else ""


class SlackInbound:
    """Hands messages to Maestro; what it raises means that Slack is not to be told that we have them."""

    def __init__(
        self,
        context: ConnectorContext,
        us: SlackBot,
        people: SlackUserDirectory,
        catch_up: SlackCatchUp,
        channels: Sequence[str],
    ) -> None:
        """Beside direct messages only those in ``channels`` are heard, all where there are none."""
        self._context = context
        self._us = us
        self._people = people
        self._catch_up = catch_up
        self._channels = frozenset(channels)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def event(self, payload: Event) -> None:
        """Take in an event; raises ``AccountRefused`` when it says that we were removed, ``Backlogged`` and more."""
        if payload.get("type") == RATE_LIMITED:
            self._catch_up.look_again()  # Slack says that it leaves events out
            return
        event = payload.get("event") or {}
        if event.get("type") in REMOVED:
            raise AccountRefused("the app was removed from the workspace: install it again and set the new token")
        channel = str(event.get("channel") or "")
        if not self.hears(channel, event):
            return
        meeting = asyncio.create_task(self._people.meet(author(event)))
        async with self._turn(channel):
            try:
                await meeting
                await self._catch_up.ready(channel)
                await self._accept(channel, event)
            except BaseException:
                self._catch_up.lost(channel)
                raise

    async def command(self, command: Event) -> str:
        """Take in a slash command; returns what the person is told at once, nothing where an answer comes."""
        message = command_in(command, self._us, datetime.now(UTC))
        if message is None:
            return KNOWN_COMMANDS
        await self._context.accept(message)
        return ""

    def hears(self, channel: str, message: Event) -> bool:
        """Say whether a message is one for us."""
        if self._channels and channel not in self._channels and not is_direct(channel):
            return False
        return self._read(channel, message) is not None

    async def take(self, channel: str, message: Event) -> None:
        """Take in a message that was missed; while the inbox is full it waits."""
        await self._people.meet(author(message))
        while True:
            try:
                await self._accept(channel, message)
            except Backlogged:
                await asyncio.sleep(FULL_SECONDS)
            else:
                return

    def _read(self, channel: str, event: Event) -> IncomingMessage | None:
        try:
            return message_in({"type": "message", **event, "channel": channel}, self._us, self._people.names)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            # What has not the shape of a message is none when it comes again either, and must hold up no other.
            log.warning("slack.unreadable", channel=channel, ts=str(event.get("ts")), error=type(error).__name__)
            return None

    async def _accept(self, channel: str, event: Event) -> None:
        message = self._read(channel, event)
        if message is None:
            return
        try:
            accepted = await self._context.accept(message)
        except InvalidMessage as error:
            log.info("slack.message_refused", channel=channel, reason=str(error))
            return
        if not message.edit_of:
            await self._catch_up.took(message, accepted)

    def _turn(self, channel: str) -> asyncio.Lock:
        """Return the lock of a channel, which lets those who wait in, in the order they came."""
        return self._turns.setdefault(channel, asyncio.Lock())
