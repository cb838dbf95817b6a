"""What works and what does not, one word or one sentence each, for `/readyz`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from maestro.domain.health import OK
from maestro.store.store import Store
from temporal.engine import Engine


class EngineHealth:
    """The store, Temporal, and whether work is done: by the workers of this process, or by those of others."""

    def __init__(self, store: Store, engine: Engine, working: Callable[[], Awaitable[str]]) -> None:
        """``working`` returns why no work is done, or nothing when it is."""
        self._store = store
        self._engine = engine
        self._working = working

    async def checks(self) -> Mapping[str, str]:
        """Return "ok" or the problem for the store, Temporal and the worker."""
        temporal = await self._engine.reachable()
        return {
            "store": await asyncio.to_thread(self._store.problem) or OK,
            "temporal": temporal or OK,
            "worker": ("Temporal has to be reachable first" if temporal else await self._working()) or OK,
        }


STARTING = "this process does not poll its queues yet"
STANDING_BY = "this process polls no queue: it is starting, or stands by until the one that has its connector ends"


def own_workers(engine: Engine, idle: str = STARTING) -> Callable[[], Awaitable[str]]:
    """Ask the workers of this process; ``idle`` is what to say while there are none."""

    async def working() -> str:
        return "" if engine.polling else idle

    return working


def workers_elsewhere(engine: Engine, queue: str) -> Callable[[], Awaitable[str]]:
    """Ask Temporal who polls the queue of the workflows."""

    async def working() -> str:
        return "" if await engine.polled(queue) else f"nobody polls the queue {queue}: start `maestro worker`"

    return working
