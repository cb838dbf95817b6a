"""Runs Maestro's work with Temporal in a process: the connection, the workers, the dispatcher and the reconciler."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import structlog
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Interceptor, UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig

from maestro.domain.errors import StoreBusy, TemporalUnavailable
from maestro.supervision import gather_limited
from temporal.attempts import LoadGauge, SlotInterceptor, SlotKind, SlotUsage
from temporal.client import (
    ASK_TIMEOUT,
    AWAY,
    CONNECT_SECONDS,
    LONGEST_WAIT,
    check_namespace,
    connect_with_retries,
    reconnect,
    watch_connection,
)
from temporal.deployments import build_name
from temporal.endpoint import Cause, Endpoint, explain_error, root_cause
from temporal.namespace import ACTIVITIES, POLLER_COUNTS, WORKFLOWS, ensure_search_attributes, list_pollers
from temporal.sdk import ActivationExecutor, report_divergence
from temporal.versions import Versions
from workflows.definitions import (
    BackgroundWorkflow,
    DelegationWorkflow,
    MessageWorkflow,
    ScheduledWorkflow,
    WhatIfWorkflow,
)

WORKFLOW_TYPES = (MessageWorkflow, DelegationWorkflow, ScheduledWorkflow, BackgroundWorkflow, WhatIfWorkflow)

FAILURE_TYPES = (Exception,)
"""The errors that fail a workflow: a fault in its code must end the job with its reason instead of hanging it.

See docs/invariants.md: no silent end.
"""

Interceptors = Sequence[Interceptor]

CACHED_WORKFLOWS = 1000
CONCURRENT_ACTIVITIES = 400
LOCAL_ACTIVITIES = 16
"""Only one transaction writes at a time, so more threads for local steps would wait."""
REBUILD_AFTER = 1.0
SEEN_AFTER = 0.05
"""Seconds until Temporal is asked again whether a new worker polls its queue; each further pause doubles."""
NEVER_BEGAN = ("Worker validation failed", "Failed creating worker")
"""How the SDK's errors about a worker refused at its start begin; the worker's queue then stays blocked."""

LONGEST_STICKY = timedelta(seconds=10)
"""The longest wait of a workflow task for the process that has the workflow in memory; the SDK's default.

After a shorter wait, another worker would read the whole history, which adds to an overload.
"""

log = structlog.get_logger(__name__)

BEGIN_AGAIN_SECONDS = 1.0

Service = Callable[[Client], Awaitable[None]]
"""A coroutine that works with Temporal until cancelled, such as the dispatcher or the reconciler."""


async def ready_at_once() -> None:
    """Return immediately; the default for a worker that can start without waiting."""


@dataclass(frozen=True)
class WorkerParts:
    """The workflows, activities and limits of the worker that polls one task queue.

    ``drain`` is the time that running activities get to finish at a shutdown. The worker polls only after ``ready``
    returns, because imports block the process for seconds, in which activities could not send heartbeats. A process
    without heartbeats for ``heartbeat`` counts as dead. A ``versioned`` worker polls as the version of this release,
    where Temporal has worker versions.
    """

    task_queue: str
    activities: Sequence[Callable[..., Any]]
    interceptors: Interceptors
    drain: timedelta
    workflows: bool = True
    versioned: bool = False
    heartbeat: timedelta = LONGEST_STICKY
    ready: Callable[[], Awaitable[None]] = ready_at_once


@dataclass(frozen=True)
class WorkerExecutors:
    """What runs the code of a worker: activities that are not coroutines in ``threads``, workflows in ``activations``.

    ``diverged`` is called when the code of a workflow went another way than its history.
    """

    threads: ThreadPoolExecutor
    activations: ActivationExecutor
    diverged: Callable[[], None]


def build_worker(
    client: Client, parts: WorkerParts, executors: WorkerExecutors, version: WorkerDeploymentConfig | None = None
) -> Worker:
    """Return a worker, which polls as ``version`` of a worker deployment, or without versions."""
    # By default the SDK hashes the code of every loaded module, which blocks the event loop for a second.
    build: dict[str, Any] = {"deployment_config": version} if version is not None else {"build_id": build_name()}
    worker = Worker(
        client,
        task_queue=parts.task_queue,
        workflows=WORKFLOW_TYPES if parts.workflows else (),
        activities=parts.activities,
        activity_executor=executors.threads,
        workflow_task_executor=executors.activations,
        interceptors=parts.interceptors,
        workflow_runner=UnsandboxedWorkflowRunner(),  # See docs/adr/0006-no-sandbox-in-workers.md.
        max_cached_workflows=CACHED_WORKFLOWS,
        max_concurrent_activities=CONCURRENT_ACTIVITIES,
        max_concurrent_local_activities=LOCAL_ACTIVITIES,
        sticky_queue_schedule_to_start_timeout=min(LoadGauge().lengthen_timeout(parts.heartbeat), LONGEST_STICKY),
        # The SDK's default sends a heartbeat at 80 % of the timeout, which leaves a busy process too little time.
        max_heartbeat_throttle_interval=parts.heartbeat / 2,
        graceful_shutdown_timeout=parts.drain,
        workflow_failure_exception_types=FAILURE_TYPES,
        **build,
    )
    report_divergence(worker, executors.diverged)
    return worker


async def release_workflows(client: Client, task_queue: str) -> None:
    """Tell Temporal that no process has the running workflows of a queue in memory.

    Otherwise the next task of each workflow would wait for the process that last ran the workflow, which has usually
    crashed. A process that is alive only has to read the history again. If the release fails, the task waits for its
    timeout.
    """

    async def release_one(workflow_id: str) -> None:
        execution = WorkflowExecution(workflow_id=workflow_id)
        request = ResetStickyTaskQueueRequest(namespace=client.namespace, execution=execution)
        with suppress(*AWAY):
            await client.workflow_service.reset_sticky_task_queue(request, timeout=ASK_TIMEOUT)

    query = f"ExecutionStatus = 'Running' AND TaskQueue = '{task_queue}'"
    with suppress(*AWAY):
        running = [each.id async for each in client.list_workflows(query, limit=CACHED_WORKFLOWS)]
        await gather_limited(20, release_one, running)


class WorkerLoop:
    """Runs a worker until stopped, and replaces the worker after Temporal refused it."""

    def __init__(
        self,
        client: Client,
        parts: WorkerParts,
        report: Callable[[str], None],
        diverged: Callable[[], None] = lambda: None,
        version: WorkerDeploymentConfig | None = None,
    ) -> None:
        self._client = client
        self._parts = parts
        self._report = report
        self._diverged = diverged
        self._version = version
        self._worker: Worker | None = None
        self._stopping = False
        self.polling = False

    async def run_worker(self, on_begin: Callable[[], None]) -> None:
        """Poll for tasks until ``stop_polling`` is called; call ``on_begin`` each time Temporal confirms polling."""
        await self._parts.ready()
        threads = ThreadPoolExecutor(CONCURRENT_ACTIVITIES, thread_name_prefix="step")
        with threads, ActivationExecutor() as activations:
            executors = WorkerExecutors(threads, activations, self._diverged)
            while not self._stopping:
                if self._parts.workflows:
                    await release_workflows(self._client, self._parts.task_queue)
                refusal = await self._poll_until_stopped(executors, on_begin)
                if refusal:
                    self._report(f"The worker of queue {self._parts.task_queue} stopped ({refusal}) and starts again.")
                    await self._wait_until_usable(blocked=refusal.startswith(NEVER_BEGAN))

    async def _poll_until_stopped(self, executors: WorkerExecutors, on_begin: Callable[[], None]) -> str:
        """Let one worker poll until it ends; return Temporal's reason for a refusal, empty for a normal end."""
        reporting = asyncio.create_task(self._report_polling(on_begin))
        try:
            self._worker = build_worker(self._client, self._parts, executors, self._version)
            await self._worker.run()
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        finally:
            reporting.cancel()
            self.polling = False
            self._worker = None
        return ""

    async def _report_polling(self, on_begin: Callable[[], None]) -> None:
        """Call ``on_begin`` once Temporal sees the worker poll: on a busy machine the first poll takes seconds.

        Where Maestro may not list the pollers, ``on_begin`` is called at the worker's start.
        """
        wait = SEEN_AFTER
        while not await self._is_poll_seen():
            await asyncio.sleep(wait)
            wait = min(wait * 2, REBUILD_AFTER)
        self.polling = True
        on_begin()

    async def _is_poll_seen(self) -> bool:
        kind = WORKFLOWS if self._parts.workflows else ACTIVITIES
        try:
            pollers = await list_pollers(self._client, self._client.namespace, self._parts.task_queue, kind)
        except AWAY as error:
            return root_cause(error) is Cause.DENIED
        return any(poller.identity == self._client.identity for poller in pollers)

    async def _wait_until_usable(self, *, blocked: bool) -> None:
        """Wait until Temporal works again, because a worker started before that would be refused again.

        If ``blocked``, the connection accepts no other worker of this queue, so the next worker gets a new connection.
        """
        wait = REBUILD_AFTER
        while not self._stopping:
            await asyncio.sleep(wait)
            try:
                await check_namespace(self._client, self._client.namespace)
                if blocked:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        self._client = await reconnect(self._client)
            except AWAY:
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                return

    @property
    def drain_seconds(self) -> float:
        """Seconds that running activities get to finish at a shutdown."""
        return self._parts.drain.total_seconds()

    async def stop_polling(self) -> None:
        """Take no new tasks, give running activities the drain time to finish, and end the worker."""
        self._stopping = True
        if self._worker is not None and self._worker.is_running:
            await self._worker.shutdown()


class Engine:
    """The connection, workers and services of a process; until Temporal is reachable, messages wait in the store."""

    def __init__(self, endpoint: Endpoint, report: Callable[[str], None], versions: Versions | None = None) -> None:
        """``versions`` are those of a process with versioned workers."""
        self._endpoint = endpoint
        self._report = report
        self.versions = versions
        self.on_divergence: Callable[[], None] = lambda: None
        self._connected = asyncio.Event()
        self._workers: list[WorkerLoop] = []
        self.client: Client | None = None
        self.slots = SlotUsage()

    @property
    def is_polling(self) -> bool:
        """Whether every worker polls for tasks, and new jobs begin here if they are to."""
        return self._polls() and (self.versions is None or self.versions.is_settled)

    async def wait_for_client(self) -> Client:
        """Wait for the first connection, and return its client."""
        await self._connected.wait()
        assert self.client is not None
        return self.client

    async def current_client(self) -> Client | None:
        """Return the client; None if Temporal has not been reached yet."""
        return self.client

    async def find_outage(self) -> str:
        """Return why Temporal cannot be used; empty when Temporal works."""
        if self.client is None:
            return "Temporal is not connected yet"
        try:
            async with asyncio.timeout(2):
                await check_namespace(self.client, self._endpoint.namespace)
        except AWAY as error:
            return explain_error(error, self._endpoint)
        return ""

    async def is_polled(self, queue: str, *, workflows: bool = True) -> bool:
        """Return whether a worker polls this queue, for workflows or activities; False also without an answer."""
        if self.client is None:
            return False
        try:
            kind = WORKFLOWS if workflows else ACTIVITIES
            pollers = await list_pollers(self.client, self._endpoint.namespace, queue, kind)
        except AWAY:
            return False
        return any(poller.seen <= POLLER_COUNTS for poller in pollers)

    async def run(self, *services: Service) -> None:
        """Connect to Temporal, and run the services until cancelled."""
        self.client = await connect_with_retries(self._endpoint, self._report)
        await self._add_search_attributes(self.client)
        if self.versions is not None:
            await self.versions.prepare(self.client)
        self._connected.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(watch_connection(self.client, self._endpoint, self._report))
            for service in services:
                group.create_task(self._run_persistently(service, self.client))

    async def run_worker(self, parts: WorkerParts, on_begin: Callable[[], None]) -> None:
        """Poll a task queue until cancelled or drained; ``on_begin`` is called each time polling begins."""
        client = await self.wait_for_client()
        version = self.versions.config if self.versions is not None and parts.versioned else None
        counted = replace(parts, interceptors=(SlotInterceptor(self.slots, parts.task_queue), *parts.interceptors))
        worker = WorkerLoop(client, counted, self._report, lambda: self.on_divergence(), version)
        self._workers.append(worker)
        self._set_limits(parts, CONCURRENT_ACTIVITIES, LOCAL_ACTIVITIES)
        try:
            await worker.run_worker(on_begin)
        finally:
            self._set_limits(parts, 0, 0)
            self._workers.remove(worker)

    def _set_limits(self, parts: WorkerParts, regular: int, local: int) -> None:
        self.slots.set_limit(parts.task_queue, SlotKind.ACTIVITY, regular)
        if parts.workflows:  # Only workflows run local activities.
            self.slots.set_limit(parts.task_queue, SlotKind.LOCAL, local)

    async def drain_workers(self) -> None:
        """Take no new tasks and let running activities finish, at most for the drain time of each worker.

        A release that was replaced first finishes its open workflows, for the same time at most, because no other
        release can; the last worker of the release hands over the rest.
        """
        versions, client = self.versions, self.client
        if versions is not None and versions.config is not None and client is not None and self._workers:
            await versions.wait_for_workflows(client, max(worker.drain_seconds for worker in self._workers))
            await self._stop_workers()
            await versions.hand_over(client)
        else:
            await self._stop_workers()

    def run_versions(self, settled: Callable[[], None]) -> Service:
        """Return the service that keeps the versions of this process's deployment.

        It calls ``settled`` when all workers poll and new jobs begin here, if they are to.
        """

        async def run(client: Client) -> None:
            if self.versions is not None and self.versions.config is not None:
                await self.versions.run(client, self._polls, settled)
            else:
                settled()

        return run

    def _polls(self) -> bool:
        return bool(self._workers) and all(worker.polling for worker in self._workers)

    async def _stop_workers(self) -> None:
        await asyncio.gather(*(worker.stop_polling() for worker in self._workers))

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
