"""Runs the engine of a process: the connection to Temporal, the workers, the dispatcher and the reconciler."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from maestro.domain.errors import StoreBusy, TemporalUnavailable
from temporal.client import AWAY, check_namespace, connect_patiently, watch_connection
from temporal.diagnosis import POLLER_COUNTS, WORKFLOWS, pollers_of
from temporal.endpoint import Endpoint
from temporal.explanations import explain
from temporal.namespace import ensure_search_attributes
from temporal.worker import WorkerLoop, WorkerParts

log = structlog.get_logger(__name__)

BEGIN_AGAIN_SECONDS = 1.0
HEALTH_TIMEOUT = timedelta(seconds=2)

Service = Callable[[Client], Awaitable[None]]
"""A coroutine that works with Temporal until cancelled, such as the dispatcher or the reconciler."""


class Engine:
    """Connects when Temporal becomes reachable, and works until stopped; messages wait in the store before that."""

    def __init__(self, endpoint: Endpoint, report: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._report = report
        self._connected = asyncio.Event()
        self._workers: list[WorkerLoop] = []
        self.client: Client | None = None

    @property
    def polling(self) -> bool:
        """Whether every worker polls for tasks."""
        return bool(self._workers) and all(worker.polling for worker in self._workers)

    async def wait_for_client(self) -> Client:
        """Wait for the first connection, and return its client."""
        await self._connected.wait()
        assert self.client is not None
        return self.client

    async def current_client(self) -> Client | None:
        """Return the client; None while Temporal was never reached."""
        return self.client

    async def outage(self) -> str:
        """Return why Temporal cannot be used; empty when it works."""
        if self.client is None:
            return "Temporal is not connected yet"
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT.total_seconds()):
                await check_namespace(self.client, self._endpoint.namespace)
        except AWAY as error:
            return explain(error, self._endpoint)
        return ""

    async def is_polled(self, queue: str) -> bool:
        """Return whether a worker polls this queue for workflows; False also when Temporal does not answer."""
        if self.client is None:
            return False
        try:
            pollers = await pollers_of(self.client, self._endpoint.namespace, queue, WORKFLOWS)
        except AWAY:
            return False
        return any(poller.seen <= POLLER_COUNTS for poller in pollers)

    async def run(self, *services: Service) -> None:
        """Connect, and run the services until cancelled."""
        self.client = await connect_patiently(self._endpoint, self._report)
        await self._add_search_attributes(self.client)
        self._connected.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(watch_connection(self.client, self._endpoint, self._report))
            for service in services:
                group.create_task(self._run_persistently(service, self.client))

    async def work(self, parts: WorkerParts, begun: Callable[[], None]) -> None:
        """Poll a queue until cancelled or drained; ``begun`` is called each time polling begins."""
        worker = WorkerLoop(await self.wait_for_client(), parts, self._report)
        self._workers.append(worker)
        try:
            await worker.run(begun)
        finally:
            self._workers.remove(worker)

    async def drain(self) -> None:
        """Take no new tasks and let running activities finish, at most for the drain time of each worker."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def _add_search_attributes(self, client: Client) -> None:
        """Add missing search attributes to an external server; if that is forbidden, report the fix."""
        while True:
            try:
                await ensure_search_attributes(client, self._endpoint.namespace)
            except TemporalUnavailable as error:
                return self._report(str(error))
            except RPCError as error:
                log.info("search_attributes.postponed", status=error.status.name)
                await asyncio.sleep(BEGIN_AGAIN_SECONDS)
            else:
                return None

    async def _run_persistently(self, work: Service, client: Client) -> None:
        """Run a service, and restart it after a failure of the store or of Temporal; intake continues meanwhile."""
        while True:
            try:
                return await work(client)
            except (StoreBusy, RPCError) as error:
                self._report(f"A service of the engine starts again after an error: {error}")
                await asyncio.sleep(BEGIN_AGAIN_SECONDS)
