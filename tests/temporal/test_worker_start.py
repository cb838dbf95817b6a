"""A worker that starts takes over the running workflows at once, instead of waiting for the process before it."""

from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType, TaskQueueKind
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from temporal.client import connect
from temporal.endpoint import Endpoint
from temporal.engine import release_workflows
from tests.support.temporal_gate import temporal_server

pytestmark = [pytest.mark.xdist_group("diagnosis")]

QUEUE = "taken-over"


@workflow.defn
class WaitingWorkflow:
    """Counts up to a number that it is told step by step."""

    def __init__(self) -> None:
        self._number = 0

    @workflow.run
    async def run(self, last: int) -> None:
        await workflow.wait_condition(lambda: self._number == last)

    @workflow.update
    def count(self) -> None:
        self._number += 1


async def queues_of_tasks(handle: WorkflowHandle[WaitingWorkflow, None]) -> list[str]:
    """Return to which kind of queue each workflow task went."""
    return [
        TaskQueueKind.Name(event.workflow_task_scheduled_event_attributes.task_queue.kind).rpartition("_")[2]
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
    ]


async def until_listed(client: Client) -> None:
    """Wait until the workflow is found by a search, which follows its start after a moment."""
    while not [each async for each in client.list_workflows(f"TaskQueue = '{QUEUE}'")]:
        pass


async def test_a_running_workflow_is_released_from_the_process_that_had_it(tmp_path: Path) -> None:
    async with temporal_server(tmp_path) as server:
        client = await connect(Endpoint(server.address, "default"))
        worker = Worker(
            client,
            task_queue=QUEUE,
            workflows=[WaitingWorkflow],
            workflow_runner=UnsandboxedWorkflowRunner(),
            build_id="test",
        )
        async with worker:
            handle = await client.start_workflow(WaitingWorkflow.run, 3, id="waiting", task_queue=QUEUE)
            await handle.execute_update(WaitingWorkflow.count)
            await handle.execute_update(WaitingWorkflow.count)
            await until_listed(client)
            await release_workflows(client, QUEUE)
            await handle.execute_update(WaitingWorkflow.count)
            await handle.result()
        *_, before, after = await queues_of_tasks(handle)
        assert (before, after) == ("STICKY", "NORMAL")
