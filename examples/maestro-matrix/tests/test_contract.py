"""The contract tests of connectors, run with the Matrix connector."""

from collections.abc import AsyncIterator, Sequence

import pytest
from conftest import Account
from matrix_homeserver import Fault, Homeserver

from connectors.contract import Bench, ConnectorContract
from connectors.contract import Fault as Trouble
from maestro.domain.messages import Address

FAULTS = {
    Trouble.BUSY: Fault.refused("M_LIMIT_EXCEEDED", 429, retry_after_ms=1500),
    Trouble.BROKEN: Fault(502),
    Trouble.CUT: Fault(stores=True, cut=True),
    Trouble.NO_CHANNEL: Fault.refused("M_FORBIDDEN"),
    Trouble.BAD_TOKEN: Fault.refused("M_UNKNOWN_TOKEN", 401),
    Trouble.BAD_MESSAGE: Fault.refused("M_TOO_LARGE", 413),
}


class MatrixBench(Account):
    """An account in a room with Ada."""

    faults = frozenset(FAULTS)
    place: Address

    async def say(self, text: str) -> str:
        """Write a message as Ada."""
        return await self.server.say(self.place.channel, text)

    async def repeat(self, message_id: str) -> None:
        """Let the homeserver return a message again."""
        await self.server.repeat(message_id)

    async def come_back(self) -> None:
        """Start another connector with the same context."""
        await self.stop()
        await self.start()

    def arm(self, fault: Trouble) -> None:
        """Let the next send fail."""
        self.server.faults["send"].append(FAULTS[fault])

    async def posts(self) -> Sequence[str]:
        """Return the bot's messages."""
        return self.server.shown(self.place.channel)


@pytest.fixture
async def bench(server: Homeserver) -> AsyncIterator[Bench]:
    """Provide a connected account."""
    made = MatrixBench(server)
    made.place = Address(platform="matrix", channel=await server.room())
    await made.start()
    yield made
    await made.stop()


class TestMatrix(ConnectorContract):
    """The contract tests with the Matrix connector."""
