"""A connector that listens beside a local server of its platform: what tests of each of them ask for."""

import asyncio
import contextlib

from connectors.base import ConnectorState
from maestro.domain.messages import IncomingMessage
from tests.support.instance import until
from tests.support.memory_context import MemoryContext


class Listening:
    """What it may ask of Maestro, and its task; how it begins is each platform's own."""

    context: MemoryContext
    running: asyncio.Task[None] | None

    async def stop(self) -> None:
        """Let it run no more."""
        if self.running is not None:
            self.running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.running

    async def heard(self, count: int) -> list[IncomingMessage]:
        """Return the inbox once there is so much in it."""
        await until(lambda: len(self.context.inbox) >= count)
        return self.context.inbox

    async def told(self, state: ConnectorState, words: str = "") -> str:
        """Return what the connector reported with a state, once it has."""

        def reports() -> list[str]:
            return [detail for reported, detail in self.context.states if reported is state and words in detail]

        await until(lambda: bool(reports()))
        return reports()[-1]
