"""The WhatsApp connector keeps the contract of connectors, with its own client and Meta's signed requests."""

import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from connectors.base import AccountRefused
from connectors.contract import Bench, ConnectorContract, MemoryContext
from connectors.contract import Fault as Trouble
from maestro.domain.messages import Address
from tests.support.whatsapp_number import ADA, OpenContext, whatsapp_number
from tests.support.whatsapp_server import ACCESS_TOKEN, Fault, Posting, WhatsAppServer

FAULTS = {
    Trouble.BUSY: Fault.limited(1),
    Trouble.CUT: Fault.cut_after(),
    Trouble.NO_CHANNEL: Fault.refused(131026),
    Trouble.BAD_TOKEN: Fault.refused(190),
    Trouble.BAD_MESSAGE: Fault.refused(100),
}
"""What WhatsApp took of a broken request nobody can say, so that one is no part of the contract here."""


class WhatsAppBench:
    """A number to which Ada wrote."""

    faults = frozenset(FAULTS)
    place = Address(platform="whatsapp", channel=ADA)
    token = ACCESS_TOKEN

    def __init__(self, whatsapp: WhatsAppServer, stack: contextlib.AsyncExitStack) -> None:
        self._kept = OpenContext()
        self.context: MemoryContext = self._kept
        self._whatsapp = whatsapp
        self._stack = stack
        self._said: dict[str, Posting] = {}

    async def connect(self) -> None:
        """Run a connector that listens."""
        self._running = await self._stack.enter_async_context(contextlib.AsyncExitStack())
        number = await self._running.enter_async_context(whatsapp_number(self._whatsapp, self._kept, status_seconds=5))
        self.connector = number.connector

    async def say(self, text: str) -> str:
        """Let Ada write."""
        message_id = self._whatsapp.say(ADA, text)
        self._said[message_id] = self._whatsapp.postman.postings[-1]
        return message_id

    async def repeat(self, message_id: str) -> None:
        """Post a message again."""
        await self._whatsapp.taken(self._said[message_id])
        self._whatsapp.postman.again(self._said[message_id])

    async def come_back(self) -> None:
        """Connect another one, to which Meta posts what was not taken."""
        await self._running.aclose()
        await self.connect()
        self._whatsapp.postman.hurry()

    def arm(self, fault: Trouble) -> None:
        """Let the next message fail."""
        self._whatsapp.fail("messages", FAULTS[fault])

    async def posts(self) -> Sequence[str]:
        """Return what the number sent."""
        return self._whatsapp.texts(ADA)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Connect one."""
    # Whose token was refused ends by itself, and says so to who runs it.
    with contextlib.suppress(AccountRefused):
        async with WhatsAppServer.running() as whatsapp, contextlib.AsyncExitStack() as stack:
            whatsapp.business.open(ADA)
            made = WhatsAppBench(whatsapp, stack)
            await made.connect()
            yield made


class TestWhatsApp(ConnectorContract):
    """The promises, kept by the WhatsApp connector."""
