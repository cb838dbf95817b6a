"""The Discord connector keeps the contract of connectors, with the real discord.py."""

import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from connectors.contract import Bench, ConnectorContract
from connectors.contract import Fault as Trouble
from tests.support.discord_bot import address, connected
from tests.support.discord_server import TOKEN, DiscordServer, Fault, Message
from tests.support.memory_context import MemoryContext

FAULTS = {
    Trouble.BUSY: Fault.limited(0.05),
    Trouble.BROKEN: Fault(503),
    Trouble.CUT: Fault.cut_after(),
    Trouble.NO_CHANNEL: Fault(403, 50001),
    Trouble.BAD_TOKEN: Fault(401),
    Trouble.BAD_MESSAGE: Fault(400, 50035),
}


class DiscordBench:
    """A bot in a direct channel."""

    faults = frozenset(FAULTS)
    token = TOKEN

    def __init__(self, discord: DiscordServer, stack: contextlib.AsyncExitStack) -> None:
        self.context = MemoryContext()
        self._discord = discord
        self._stack = stack
        self._ada = discord.user("Ada")
        self._channel = discord.direct(self._ada)
        self.place = address(self._channel)
        self._said: dict[str, Message] = {}

    async def connect(self) -> None:
        """Run a connector that is connected."""
        self._running = await self._stack.enter_async_context(contextlib.AsyncExitStack())
        self.connector = await self._running.enter_async_context(connected(self._discord, self.context))

    async def say(self, text: str) -> str:
        """Let Ada write."""
        message = self._discord.say(self._ada, self._channel, text)
        self._said[str(message.id)] = message
        return str(message.id)

    async def repeat(self, message_id: str) -> None:
        """Tell of a message again."""
        self._discord.tell(self._said[message_id])

    async def come_back(self) -> None:
        """Connect another one: Discord delivers nothing again, so it reads what it missed."""
        await self._running.aclose()
        await self.connect()

    def arm(self, fault: Trouble) -> None:
        """Let the next message fail."""
        self._discord.fail("POST", "messages", FAULTS[fault])

    async def posts(self) -> Sequence[str]:
        """Return what the bot wrote."""
        return [message.content for message in self._discord.posts(self._channel)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Connect one."""
    with DiscordServer.running() as discord:
        async with contextlib.AsyncExitStack() as stack:
            made = DiscordBench(discord, stack)
            await made.connect()
            yield made


class TestDiscord(ConnectorContract):
    """The promises, kept by the Discord connector."""
