"""Runs the engine of one process: the connection to Temporal, the worker, the dispatcher, the reconciler."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from maestro.domain.errors import StoreBusy, TemporalUnavailable
from temporal.client import Endpoint, connect_patiently
from temporal.dispatcher import Dispatcher
from temporal.reconciler import Reconciler
from temporal.search_attributes import ensure_search_attributes
from temporal.worker import WorkerLoop, WorkerParts

BEGIN_AGAIN_SECONDS = 1.0
HEALTH_TIMEOUT = timedelta(seconds=2)


class Engine:
    """Connects as soon as Temporal is there, and works until stopped; until then messages wait in the store."""

    def __init__(self, dispatcher: Dispatcher, reconciler: Reconciler, report: Callable[[str], None]) -> None:
        self._dispatcher = dispatcher
        self._reconciler = reconciler
        self._report = report
        self._worker: WorkerLoop | None = None
        self.client: Client | None = None
        self.ready = asyncio.Event()

    @property
    def polling(self) -> bool:
        """Whether the worker takes work."""
        return self._worker is not None and self._worker.polling.is_set()

    async def reachable(self) -> str:
        """Return why Temporal cannot be worked with, or nothing when it can."""
        if self.client is None:
            return "Temporal is not connected yet"
        try:
            healthy = await self.client.service_client.check_health(timeout=HEALTH_TIMEOUT)
        except RPCError as error:
            return f"Temporal does not answer ({error.status.name})"
        return "" if healthy else "Temporal says that it is not healthy"

    async def run(self, endpoint: Endpoint, parts: WorkerParts) -> None:
        """Work until cancelled."""
        self.client = await connect_patiently(endpoint, self._report)
        await self._prepare(self.client, endpoint)
        self._worker = WorkerLoop(self.client, parts, self._report)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._worker.run())
            group.create_task(self._persistently(self._dispatcher.run, self.client))
            group.create_task(self._persistently(self._reconciler.run, self.client))
            await self._worker.polling.wait()
            self.ready.set()

    async def _prepare(self, client: Client, endpoint: Endpoint) -> None:
        """Add the search attributes that a server we did not start may lack; who may not is told what to do."""
        try:
            await ensure_search_attributes(client, endpoint.namespace)
        except TemporalUnavailable as error:
            self._report(str(error))

    async def _persistently(self, work: Callable[[Client], Awaitable[None]], client: Client) -> None:
        """Begin again when store or Temporal fail for a while: intake goes on meanwhile, and nothing is lost."""
        while True:
            try:
                return await work(client)
            except (StoreBusy, RPCError) as error:
                self._report(f"A part of the engine begins again: {error}")
                await asyncio.sleep(BEGIN_AGAIN_SECONDS)

    async def drain(self) -> None:
        """Take no new work and let what runs finish, for as long as the worker's parts say."""
        self._dispatcher.pause()
        if self._worker is not None:
            await self._worker.stop()
