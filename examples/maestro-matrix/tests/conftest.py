"""Fixtures: a homeserver for tests, and an account on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from maestro_matrix.connector import MatrixConnector
from maestro_matrix.platform import ACCESS_TOKEN, MatrixOptions
from matrix_homeserver import TOKEN, Homeserver
from pydantic import SecretStr

from connectors.base import AccountRefused
from connectors.contract import MemoryContext
from connectors.options import Instance
from maestro.domain.messages import Address, IncomingMessage, OutgoingMessage

PATIENCE = 20.0


class Account:
    """A running connector, the context that records its calls, and its homeserver."""

    token = TOKEN

    def __init__(self, server: Homeserver) -> None:
        self.server, self.context = server, MemoryContext()
        self.connector: MatrixConnector
        self._running: asyncio.Task[None] | None = None

    async def start(self, **options: Any) -> None:
        """Connect, and return when the connector polls."""
        self.connect(**options)
        await self.server.listened()

    def connect(self, **options: Any) -> None:
        """Connect without waiting for the outcome."""
        found = MatrixOptions(base_url=self.server.url, **options)
        instance = Instance("default", {ACCESS_TOKEN: SecretStr(TOKEN)}, found)
        self.connector = MatrixConnector(instance, self.context, found)
        self._running = asyncio.create_task(self.connector.run())

    async def stop(self) -> None:
        """Stop the connector, unless a refusal has already ended it."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError, AccountRefused):
                await self._running

    async def ended(self) -> None:
        """Wait until the connector has ended by itself; raises the error that ended it."""
        assert self._running is not None
        async with asyncio.timeout(PATIENCE):
            await self._running

    async def heard(self, count: int) -> list[IncomingMessage]:
        """Return the inbox once it has ``count`` messages and the connector polls again."""
        await until(lambda: len(self.context.inbox) >= count, f"{count} messages, there are {self.texts()}")
        await self.server.listened()
        return self.context.inbox

    def texts(self) -> list[str]:
        """Return the texts of the messages in the inbox."""
        return [one.content for one in self.context.inbox]


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds; raises ``AssertionError`` with ``what`` after ``PATIENCE`` seconds."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} seconds: {what}") from None


def chunk(room: str, content: str, **extra: Any) -> OutgoingMessage:
    """Return a chunk addressed to a room."""
    thread = extra.pop("thread", "")
    fields = {"id": 1, "key": "key0000000000000000000001", **extra}
    return OutgoingMessage(address=Address(platform="matrix", channel=room, thread=thread), content=content, **fields)


@pytest.fixture
async def server() -> AsyncIterator[Homeserver]:
    """Run a homeserver."""
    async with Homeserver.running() as running:
        yield running


@pytest.fixture
async def account(server: Homeserver) -> AsyncIterator[Account]:
    """Provide an account on the homeserver, which a test connects."""
    made = Account(server)
    yield made
    await made.stop()
