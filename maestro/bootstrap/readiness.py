"""What works and what does not, one word or one sentence each, for `/readyz`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from maestro.domain.health import OK
from maestro.store.store import Store
from temporal.engine import Engine

STORE_SECONDS = 2.0
"""How long the store may take to answer; a write that waits for the lock of the database takes up to 30 s."""
NO_ANSWER = (
    f"the store has not answered for {STORE_SECONDS:g} s: another program holds the lock of the database, or its disk "
    "hangs. Check its disk and who else uses the database."
)


class StoreHealth:
    """Asks the store for its problem, once at a time: while it cannot be written, each question takes long."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking: asyncio.Task[str | None] | None = None

    async def problem(self) -> str | None:
        """Return why the store cannot be read or written, or None."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(self._store.problem))
        asking = self._asking
        await asyncio.wait([asking], timeout=STORE_SECONDS)
        if asking.done():
            return asking.result()
        return self._store.writes.problem if self._store.writes.failing else NO_ANSWER


class EngineHealth:
    """The store, Temporal, and whether work is done: by the workers of this process, or by those of others."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        working: Callable[[], Awaitable[str]],
        silent: Callable[[], str] | None = None,
    ) -> None:
        """``working`` returns why no work is done, or nothing when it is; ``silent`` which connectors do not listen."""
        self._store = StoreHealth(store)
        self._engine = engine
        self._working = working
        self._silent = silent

    async def checks(self) -> Mapping[str, str]:
        """Return "ok" or the problem for the store, Temporal, the worker, and the connectors where there are any."""
        store, temporal = await asyncio.gather(self._store.problem(), self._engine.reachable())
        checks = {
            "store": store or OK,
            "temporal": temporal or OK,
            "worker": ("Temporal has to be reachable first" if temporal else await self._working()) or OK,
        }
        return checks if self._silent is None else {**checks, "connectors": self._silent() or OK}


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
