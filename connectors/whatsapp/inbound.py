"""What comes in from WhatsApp: all of a request is kept before it is acknowledged, in the order of each person."""

import asyncio
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import structlog

from connectors.base import ConnectorContext
from connectors.whatsapp.receive import Happening, Moved, Other, Passed, Said, Told, Us, happenings
from maestro.domain.errors import InvalidMessage
from maestro.domain.messages import IncomingMessage

MOST_CHATS = 10_000

log = structlog.get_logger(__name__)


class Inbound:
    """Hands on what a request tells of; what it raises means that Meta is to send the request again."""

    def __init__(self, context: ConnectorContext, us: Us) -> None:
        self._context = context
        self._us = us
        self._newest: dict[str, str] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, payload: Mapping[str, Any]) -> None:
        """Take in everything that a request tells of; what was kept when it fails is a duplicate the next time."""
        others = 0
        for one in happenings(payload, self._us):
            if isinstance(one, Other):
                others += one.count
            else:
                await self._take(one)
        if others:
            log.info("whatsapp.of_another_number", account=self._us.account, count=others)

    def newest(self, channel: str) -> str:
        """Return the id of the message that came last in a chat since we began, empty where none did."""
        return self._newest.get(channel, "")

    async def _take(self, one: Happening) -> None:
        if isinstance(one, Said):
            async with self._turn(one.message.address.channel):
                await self._accept(await self._worded(one))
        elif isinstance(one, Told):
            await self._context.told(one.key, one.report)
        elif isinstance(one, Moved):
            await self._context.moved(one.channel, one.to)
        elif isinstance(one, Passed):
            log.warning("whatsapp.passed_over", account=self._us.account, reason=one.why)

    async def _worded(self, said: Said) -> IncomingMessage:
        """Return the message with what its button says; what stands on a button that we do not know says it all."""
        if said.press is None:
            return said.message
        value = await self._context.pressed(said.press.key, said.press.number)
        return said.message if value is None else said.message.model_copy(update={"content": value})

    async def _accept(self, message: IncomingMessage) -> None:
        try:
            await self._context.accept(message)
        except InvalidMessage as error:
            log.info("whatsapp.message_refused", account=self._us.account, reason=str(error))
            return
        self._newest.pop(message.address.channel, None)
        if len(self._newest) >= MOST_CHATS:
            del self._newest[next(iter(self._newest))]
        self._newest[message.address.channel] = message.edit_of or message.id

    def _turn(self, channel: str) -> asyncio.Lock:
        """Return the lock of a chat, which lets those who wait in, in the order they came."""
        return self._turns.setdefault(channel, asyncio.Lock())
