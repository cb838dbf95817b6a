"""A workflow that hangs fails its workflow task, as with the SDK's own threads, and holds up no other workflow."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from temporal.client import connect
from temporal.endpoint import Endpoint
from temporal.sdk import ActivationExecutor
from tests.support.temporal_gate import temporal_server

pytestmark = [pytest.mark.xdist_group("diagnosis")]

QUEUE = "hanging"
HANG_SECONDS = 0.2


class Hangs:
    """How often the workflow still hangs, and on which threads it ran."""

    left = 1
    threads: list[int] = []  # noqa: RUF012 - of this module alone


@workflow.defn
class HangingWorkflow:
    """Hangs the first time, and is done the second time."""

    @workflow.run
    async def run(self) -> str:
        Hangs.threads.append(threading.get_ident())
        Hangs.left -= 1
        while Hangs.left == 0:
            pass
        return "done"


@workflow.defn
class OtherWorkflow:
    """Does nothing."""

    @workflow.run
    async def run(self) -> str:
        return "done"


async def failures(handle: WorkflowHandle[HangingWorkflow, str]) -> list[str]:
    """Return the classes of the errors that failed workflow tasks."""
    return [
        event.workflow_task_failed_event_attributes.failure.application_failure_info.type
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]


def worker(client: Client, activations: ThreadPoolExecutor) -> Worker:
    """Return a worker like that of the product."""
    return Worker(
        client,
        task_queue=QUEUE,
        workflows=[HangingWorkflow, OtherWorkflow],
        workflow_task_executor=activations,
        workflow_runner=UnsandboxedWorkflowRunner(),
        workflow_failure_exception_types=[Exception],
        build_id="test",
    )


async def test_a_workflow_that_hangs_is_reported_and_tried_again_in_a_thread(tmp_path: Path) -> None:
    async with temporal_server(tmp_path) as server:
        client = await connect(Endpoint(server.address, "default"))
        with ActivationExecutor(HANG_SECONDS) as activations:
            async with worker(client, activations):
                hanging = await client.start_workflow(HangingWorkflow.run, id="hanging", task_queue=QUEUE)
                other = await client.start_workflow(OtherWorkflow.run, id="other", task_queue=QUEUE)
                assert await other.result() == "done"
                assert await hanging.result() == "done"
        assert await failures(hanging) == ["_DeadlockError"]
        first, second = Hangs.threads
        assert first == threading.get_ident() != second
