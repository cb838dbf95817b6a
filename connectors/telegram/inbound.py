"""What comes in from Telegram, whichever way: committed before it is confirmed, in the order of each chat."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol
from weakref import WeakValueDictionary

import structlog
import telegram

from connectors.base import ConnectorContext
from connectors.telegram.albums import Group
from connectors.telegram.api import Update
from connectors.telegram.moves import Moves
from connectors.telegram.receive import Pressed, Us, heard, joined, migration, pressed, said_by
from maestro.domain.errors import InvalidMessage
from maestro.domain.messages import IncomingMessage
from maestro.domain.texts import tidied

GONE = "This button does nothing any more."
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError, RuntimeError)
"""What the library raises for what has not the shape that Telegram documents."""

log = structlog.get_logger(__name__)

Move = tuple[str, str]
Told = IncomingMessage | Pressed | Move | None


class Buttons(Protocol):
    """What tells Telegram that a button was pressed."""

    async def taken(self, query_id: str, text: str = "") -> None:
        """End the wait that the person sees, and show them a text if there is one; never fails."""
        ...


class Inbound:
    """Hands messages to Maestro; what it raises means that Telegram is to say it again."""

    def __init__(self, context: ConnectorContext, us: Us, moves: Moves, buttons: Buttons) -> None:
        self._context = context
        self._us = us
        self._moves = moves
        self._buttons = buttons
        self._channels: frozenset[str] = frozenset()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def listen_to(self, channels: Sequence[str]) -> None:
        """Hear, beside direct messages, only these groups, wherever they moved; all where there are none."""
        now = [await self._moves.now(channel) for channel in channels]
        self._channels = frozenset([*channels, *now])

    async def take(self, group: Group) -> None:
        """Take in what is one message; raises ``Backlogged`` and what else keeps it from being stored."""
        told = [self._read(update) for update in group]
        messages = [one for one in told if isinstance(one, IncomingMessage) and self._hears(one)]
        if messages:
            await self._accept(joined(messages))
        for one in told:
            if isinstance(one, Pressed):
                await self._press(one)
            elif isinstance(one, tuple):
                await self._move(*one)

    def _read(self, update: Update) -> Told:
        try:
            read = telegram.Update.de_json(tidied(dict(update)), None)
            return migration(read) or pressed(read, self._us) or heard(read, self._us)
        except UNREADABLE as error:
            # What has not the shape of a message is none when it comes again either, and must hold up no other.
            kind = next((str(name) for name in update if name != "update_id"), "")
            log.warning("telegram.unreadable", kind=kind[:40], error=type(error).__name__)
            return None

    async def _accept(self, message: IncomingMessage) -> None:
        async with self._turns.setdefault(message.address.channel, asyncio.Lock()):
            try:
                await self._context.accept(message)
            except InvalidMessage as error:
                log.info("telegram.message_refused", channel=message.address.channel, reason=str(error))

    async def _press(self, press: Pressed) -> None:
        """Take in what a button says, and then tell Telegram that it was pressed."""
        content = await self._context.pressed(press.key, press.number) if press.number >= 0 else None
        message = said_by(press, content or "", datetime.now(UTC))
        if content is None or not self._hears(message):
            await self._buttons.taken(press.query.id, GONE)
        else:
            await self._accept(message)
            await self._buttons.taken(press.query.id)

    async def _move(self, channel: str, to: str) -> None:
        log.info("telegram.group_moved", channel=channel, to=to)
        await self._moves.moved(channel, to)
        self._channels = self._channels | {to} if channel in self._channels else self._channels

    def _hears(self, message: IncomingMessage) -> bool:
        return message.is_direct or not self._channels or message.address.channel in self._channels
