"""A local Telegram, and a bot that listens to it."""

from collections.abc import AsyncIterator

import pytest

from tests.support.telegram_bot import TelegramBot, telegram_bot
from tests.support.telegram_server import TelegramServer


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer.running() as server:
        yield server


@pytest.fixture
async def bot(telegram: TelegramServer) -> AsyncIterator[TelegramBot]:
    async with telegram_bot(telegram) as one:
        yield one
