"""The connectors this process holds, and the typing indicators they show."""

import asyncio
from collections.abc import Iterable

import structlog

from connectors.base import Connector, NotDispatched
from maestro.domain.errors import MaestroError
from maestro.domain.messages import Address

LONGEST_TYPING = 600.0
"""Seconds after which an indicator ends by itself, whatever its job does."""

log = structlog.get_logger(__name__)


class ConnectorHub:
    """Finds the connector of a platform's account."""

    def __init__(self, connectors: Iterable[Connector]) -> None:
        self._connectors = {(connector.platform, connector.account): connector for connector in connectors}

    def find(self, address: Address) -> Connector | None:
        """Return the connector, or None when another process holds it."""
        return self._connectors.get((address.platform, address.account))

    def holding(self, address: Address) -> Connector:
        """Return the connector; raises ``NotDispatched`` when this process does not hold it."""
        connector = self.find(address)
        if connector is None:
            raise NotDispatched(f"no connector for {address.platform}/{address.account} runs in this process")
        return connector


class TypingIndicators:
    """Keeps indicators alive in the background; may be called from any thread."""

    def __init__(self, hub: ConnectorHub, loop: asyncio.AbstractEventLoop) -> None:
        self._hub = hub
        self._loop = loop
        self._shown: dict[str, asyncio.Task[None]] = {}

    def start(self, job_id: str, address: Address) -> bool:
        """Show the indicator now and again until ``stop``; false when another process holds the connector.

        Where it is shown already, it goes on as it is.
        """
        connector = self._hub.find(address)
        if connector is None:
            return False
        self._loop.call_soon_threadsafe(self._begin, job_id, connector, address)
        return True

    def stop(self, job_id: str) -> None:
        """Show it no more."""
        self._loop.call_soon_threadsafe(self._end, job_id)

    def _begin(self, job_id: str, connector: Connector, address: Address) -> None:
        shown = self._shown.get(job_id)
        if shown is None or shown.done():
            self._shown[job_id] = self._loop.create_task(_show(connector, address))

    def _end(self, job_id: str) -> None:
        task = self._shown.pop(job_id, None)
        if task is not None:
            task.cancel()


async def _show(connector: Connector, address: Address) -> None:
    try:
        async with asyncio.timeout(LONGEST_TYPING):
            while True:
                await connector.typing(address)
                await asyncio.sleep(connector.capabilities.typing_interval)
    except TimeoutError:
        log.info("typing.expired", platform=address.platform)
    except MaestroError as error:
        # An indicator is a courtesy: what stops it must not stop the answer.
        log.info("typing.failed", platform=address.platform, error=type(error).__name__)
