"""What comes in from Slack, whichever way: committed before it is acknowledged, in the order of each channel."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from weakref import WeakValueDictionary

import structlog

from connectors.base import ConnectorContext
from connectors.outcomes import AccountRefused
from connectors.slack.catch_up import CatchUp
from connectors.slack.people import People
from connectors.slack.receive import Event, Us, author, commanded, heard, is_direct
from maestro.domain.errors import Backlogged, InvalidMessage
from maestro.domain.messages import IncomingMessage

KNOWN_COMMANDS = "I know /stop, /status and /new."
REMOVED = frozenset({"app_uninstalled", "tokens_revoked"})
RATE_LIMITED = "app_rate_limited"
FULL_SECONDS = 5.0
"""When a message that was found is tried again while the inbox is full."""

log = structlog.get_logger(__name__)


class Inbound:
    """Hands messages to Maestro; what it raises means that Slack is not to be told that we have them."""

    def __init__(
        self, context: ConnectorContext, us: Us, people: People, catch_up: CatchUp, channels: Sequence[str]
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
        message = commanded(command, self._us, datetime.now(UTC))
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
            return heard({"type": "message", **event, "channel": channel}, self._us, self._people.names)
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
