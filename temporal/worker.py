"""Builds a worker of a task queue and keeps it running."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client
from temporalio.worker import Interceptor, UnsandboxedWorkflowRunner, Worker

from maestro.domain.release import release
from temporal.attempts import LoadGauge
from temporal.client import ASK_TIMEOUT, AWAY, CONNECT_SECONDS, LONGEST_WAIT, check_namespace, connect_anew
from temporal.diagnosis import ACTIVITIES, WORKFLOWS, pollers_of
from temporal.explanations import Cause, cause_of
from temporal.sdk import ActivationExecutor
from workflows.definitions import (
    BackgroundWorkflow,
    DelegationWorkflow,
    MessageWorkflow,
    ScheduledWorkflow,
    WhatIfWorkflow,
)

WORKFLOW_TYPES = (MessageWorkflow, DelegationWorkflow, ScheduledWorkflow, BackgroundWorkflow, WhatIfWorkflow)

Interceptors = Sequence[Interceptor]

CACHED_WORKFLOWS = 1000
RELEASED_AT_ONCE = 20
CONCURRENT_ACTIVITIES = 400
LOCAL_ACTIVITIES = 16
"""The number of threads for local steps: only one transaction writes at a time, so more threads would wait."""
REBUILD_AFTER = 1.0
SEEN_AFTER = 0.05
"""The first pause before Temporal is asked again whether it sees a new worker's polls; pauses double."""
NEVER_BEGAN = ("Worker validation failed", "Failed creating worker")
"""The beginning of the SDK's errors about a worker that was refused at its start; its queue then stays blocked."""

LONGEST_STICKY = timedelta(seconds=10)
"""How long a workflow task waits at most for the process that has the workflow in memory; the SDK's default.

A shorter time adds to an overload: any worker gets the task, and reads the history from its beginning.
"""


def production_runner() -> UnsandboxedWorkflowRunner:
    """Return the workflow runner of workers, which has no sandbox (docs/adr/0006-no-sandbox-in-workers.md)."""
    return UnsandboxedWorkflowRunner()


async def ready_at_once() -> None:
    """Return without waiting: the default where a worker has to wait for nothing."""


@dataclass(frozen=True)
class WorkerParts:
    """The workflows and activities of the worker of one queue.

    ``drain`` is how long running activities may take to finish at a shutdown. ``ready`` returns when the process can do
    the work: importing a library holds the interpreter for seconds, in which no activity could send its heartbeats.
    After ``heartbeat`` without a heartbeat, a process counts as dead.
    """

    task_queue: str
    activities: Sequence[Callable[..., Any]]
    interceptors: Interceptors
    drain: timedelta
    workflows: bool = True
    heartbeat: timedelta = LONGEST_STICKY
    ready: Callable[[], Awaitable[None]] = ready_at_once


def build_worker(
    client: Client, parts: WorkerParts, threads: ThreadPoolExecutor, activations: ActivationExecutor
) -> Worker:
    """Return a worker; ``threads`` run the activities that are not coroutines, ``activations`` the workflows."""
    return Worker(
        client,
        task_queue=parts.task_queue,
        workflows=WORKFLOW_TYPES if parts.workflows else (),
        activities=parts.activities,
        activity_executor=threads,
        workflow_task_executor=activations,
        interceptors=parts.interceptors,
        workflow_runner=production_runner(),
        max_cached_workflows=CACHED_WORKFLOWS,
        max_concurrent_activities=CONCURRENT_ACTIVITIES,
        max_concurrent_local_activities=LOCAL_ACTIVITIES,
        sticky_queue_schedule_to_start_timeout=min(LoadGauge().lengthened(parts.heartbeat), LONGEST_STICKY),
        # The SDK's default, a heartbeat at 80 % of the timeout, leaves a busy process too little time for the next one.
        max_heartbeat_throttle_interval=parts.heartbeat / 2,
        graceful_shutdown_timeout=parts.drain,
        # By default the SDK hashes the code of every loaded module, which blocks the event loop for a second.
        build_id=release(),
        # A fault in workflow code must end the job with its reason instead of hanging it
        # (docs/invariants.md: no silent end).
        workflow_failure_exception_types=[Exception],
    )


async def release_workflows(client: Client, task_queue: str) -> None:
    """Tell Temporal that no process has the running workflows of a queue in memory.

    Otherwise the next task of each workflow waits for the process that ran the workflow before, usually this one before
    a crash. If that process is alive, it reads the history again. A workflow that cannot be released waits for its
    timeout.
    """
    gate = asyncio.Semaphore(RELEASED_AT_ONCE)

    async def release_one(workflow_id: str) -> None:
        execution = WorkflowExecution(workflow_id=workflow_id)
        request = ResetStickyTaskQueueRequest(namespace=client.namespace, execution=execution)
        async with gate:
            with suppress(*AWAY):
                await client.workflow_service.reset_sticky_task_queue(request, timeout=ASK_TIMEOUT)

    query = f"ExecutionStatus = 'Running' AND TaskQueue = '{task_queue}'"
    with suppress(*AWAY):
        running = [each.id async for each in client.list_workflows(query, limit=CACHED_WORKFLOWS)]
        await asyncio.gather(*map(release_one, running))


class WorkerLoop:
    """Runs a worker until stopped, and rebuilds the worker after Temporal refused it."""

    def __init__(self, client: Client, parts: WorkerParts, report: Callable[[str], None]) -> None:
        self._client = client
        self._parts = parts
        self._report = report
        self._worker: Worker | None = None
        self._stopping = False
        self.polling = False

    async def run(self, begun: Callable[[], None]) -> None:
        """Poll until ``stop`` is called; ``begun`` is called each time Temporal sees the polls begin."""
        await self._parts.ready()
        threads = ThreadPoolExecutor(CONCURRENT_ACTIVITIES, thread_name_prefix="step")
        with threads, ActivationExecutor() as activations:
            while not self._stopping:
                if self._parts.workflows:
                    await release_workflows(self._client, self._parts.task_queue)
                worker = partial(build_worker, threads=threads, activations=activations)
                refusal = await self._poll(worker, begun)
                if refusal:
                    self._report(f"The worker of queue {self._parts.task_queue} stopped ({refusal}) and starts again.")
                    await self._wait_until_usable(blocked=refusal.startswith(NEVER_BEGAN))

    async def _poll(self, build: Callable[[Client, WorkerParts], Worker], begun: Callable[[], None]) -> str:
        """Let one worker poll until it ends; return Temporal's reason for a refusal, empty for a normal end."""
        reporting = asyncio.create_task(self._report_polling(begun))
        try:
            self._worker = build(self._client, self._parts)
            await self._worker.run()
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        finally:
            reporting.cancel()
            self.polling = False
            self._worker = None
        return ""

    async def _report_polling(self, begun: Callable[[], None]) -> None:
        """Report that polling began once Temporal sees a poll: on a busy machine the first poll takes seconds.

        Where Maestro may not list the pollers, the start of the worker counts as the beginning.
        """
        wait = SEEN_AFTER
        while not await self._is_poll_seen():
            await asyncio.sleep(wait)
            wait = min(wait * 2, REBUILD_AFTER)
        self.polling = True
        begun()

    async def _is_poll_seen(self) -> bool:
        kind = WORKFLOWS if self._parts.workflows else ACTIVITIES
        try:
            pollers = await pollers_of(self._client, self._client.namespace, self._parts.task_queue, kind)
        except AWAY as error:
            return cause_of(error) is Cause.DENIED
        return any(poller.identity == self._client.identity for poller in pollers)

    async def _wait_until_usable(self, *, blocked: bool) -> None:
        """Wait until Temporal works again, because a worker built earlier would be refused again.

        ``blocked``: the connection accepts no other worker of this queue, so the next worker gets a new connection.
        """
        wait = REBUILD_AFTER
        while not self._stopping:
            await asyncio.sleep(wait)
            try:
                await check_namespace(self._client, self._client.namespace)
                if blocked:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        self._client = await connect_anew(self._client)
            except AWAY:
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                return

    async def stop(self) -> None:
        """Take no new work, give running activities the drain time, and end."""
        self._stopping = True
        if self._worker is not None and self._worker.is_running:
            await self._worker.shutdown()
