"""A server that speaks Discord's protocol, a context without a store, somebody and a channel."""

from collections.abc import Iterator

import pytest

from tests.support.discord_server import Channel, DiscordServer, User
from tests.support.memory_context import MemoryContext


@pytest.fixture
def discord() -> Iterator[DiscordServer]:
    with DiscordServer.running() as server:
        yield server


@pytest.fixture
def context() -> MemoryContext:
    return MemoryContext()


@pytest.fixture
def ann(discord: DiscordServer) -> User:
    return discord.user("ann")


@pytest.fixture
def square(discord: DiscordServer) -> Channel:
    return discord.channel("square")
