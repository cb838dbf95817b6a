"""The Telegram connector keeps the contract of connectors, with the real library and polling."""

import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from connectors.base import AccountRefused
from connectors.contract import Bench, ConnectorContract
from connectors.contract import Fault as Trouble
from maestro.domain.messages import Address
from tests.support.memory_context import MemoryContext
from tests.support.telegram_bot import telegram_bot
from tests.support.telegram_server import ADA, TOKEN, Fault, TelegramServer

FAULTS = {
    Trouble.BUSY: Fault.limited(1),
    Trouble.BROKEN: Fault.broken(),
    Trouble.CUT: Fault.cut_after(),
    Trouble.NO_CHANNEL: Fault.refused("Forbidden: bot was blocked by the user", 403),
    Trouble.BAD_TOKEN: Fault.refused("Unauthorized", 401),
    Trouble.BAD_MESSAGE: Fault.refused("Bad Request: message is too long"),
}


class TelegramBench:
    """A bot in a direct chat."""

    faults = frozenset(FAULTS)
    place = Address(platform="telegram", channel=str(ADA))
    token = TOKEN

    def __init__(self, telegram: TelegramServer, stack: contextlib.AsyncExitStack) -> None:
        self.context = MemoryContext()
        self._telegram = telegram
        self._stack = stack

    async def connect(self) -> None:
        """Run a connector that listens."""
        self._running = await self._stack.enter_async_context(contextlib.AsyncExitStack())
        bot = await self._running.enter_async_context(telegram_bot(self._telegram, self.context))
        self.connector = bot.connector

    async def say(self, text: str) -> str:
        """Let Ada write."""
        return str(await self._telegram.say(ADA, ADA, text))

    async def repeat(self, message_id: str) -> None:
        """Tell of a message again, as of something new: a poll gets what was not confirmed by itself."""
        message = self._telegram.chats.find(ADA, int(message_id))
        assert message is not None
        await self._telegram.tell("message", message)

    async def come_back(self) -> None:
        """Connect another one; what was not confirmed still waits for it."""
        await self._running.aclose()
        await self.connect()

    def arm(self, fault: Trouble) -> None:
        """Let the next message fail."""
        self._telegram.fail("sendMessage", FAULTS[fault])

    async def posts(self) -> Sequence[str]:
        """Return what the bot wrote."""
        return self._telegram.texts(ADA)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Connect one."""
    # Whose token was refused ends by itself, and says so to who runs it.
    with contextlib.suppress(AccountRefused):
        async with TelegramServer.running() as telegram, contextlib.AsyncExitStack() as stack:
            made = TelegramBench(telegram, stack)
            await made.connect()
            yield made


class TestTelegram(ConnectorContract):
    """The promises, kept by the Telegram connector."""
