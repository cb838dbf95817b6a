"""The Telegram connector beside a local Telegram, with the real library between them and no Maestro around it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from connectors.base import ConnectorState
from connectors.options import Instance
from connectors.telegram.connector import TelegramConnector
from connectors.telegram.platform import TOKEN as TOKEN_NAME
from connectors.telegram.platform import WEBHOOK_SECRET, TelegramOptions
from maestro.domain.messages import Address, OutgoingMessage
from tests.support.instance import until
from tests.support.listening import Listening
from tests.support.memory_context import MemoryContext
from tests.support.telegram_server import SECRET, TOKEN, TelegramServer

FAST = {"pace_seconds": 0, "group_pace_seconds": 0}


@dataclass
class TelegramBot(Listening):
    """A connector, what it may ask of Maestro, and the Telegram it is connected to."""

    telegram: TelegramServer
    context: MemoryContext
    connector: TelegramConnector
    running: asyncio.Task[None] | None = field(default=None)

    def start(self) -> None:
        """Let it run."""
        self.running = asyncio.create_task(self.connector.run())


def instance(telegram: TelegramServer, **options: Any) -> Instance:
    """Return an account at a local Telegram."""
    secrets = {TOKEN_NAME: SecretStr(TOKEN), WEBHOOK_SECRET: SecretStr(SECRET)}
    local = {"base_url": telegram.root, "media_hosts": ("127.0.0.1",)}
    return Instance("default", secrets, TelegramOptions(**{**FAST, **local, **options}), "digest")


@asynccontextmanager
async def telegram_bot(
    telegram: TelegramServer, context: MemoryContext | None = None, *, start: bool = True, **options: Any
) -> AsyncIterator[TelegramBot]:
    """Connect a bot for the length of a block; it listens when the block begins."""
    kept = context or MemoryContext()
    made = TelegramConnector(instance(telegram, **options), kept)
    bot, before = TelegramBot(telegram, kept, made), len(kept.states)
    try:
        if start:
            bot.start()
            await until(lambda: ConnectorState.RUNNING in dict(kept.states[before:]))
        yield bot
    finally:
        await bot.stop()
        # Only ``run`` closes the connections; a test that sends without it would leave them open for later tests.
        await made._client.close_when_idle()


@asynccontextmanager
async def telegram_and_bot(**options: Any) -> AsyncIterator[TelegramBot]:
    """Run a local Telegram and connect a bot to it."""
    async with TelegramServer.running() as telegram, telegram_bot(telegram, **options) as bot:
        yield bot


def chunk(content: str, chat: int, thread: str = "", number: int = 1, **extra: Any) -> OutgoingMessage:
    """Return a chunk on its way to a chat."""
    address = Address(platform="telegram", account="default", channel=str(chat), thread=thread)
    return OutgoingMessage(id=number, address=address, content=content, key=f"key{number:021d}", **extra)
