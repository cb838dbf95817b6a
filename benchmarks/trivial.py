"""A worker for a workflow that does nothing, without a sandbox: the unit for the cost of a message.

``python -m benchmarks.trivial <address>`` reads numbers from its input, runs as many workflows for each, and prints
``ready`` after them.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import ClassVar
from uuid import uuid4

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

QUEUE = "benchmark"
AT_ONCE = 50
READY = "ready"

Ends = dict[str, Callable[[], object]]
"""The callback for the end of a workflow, by its id; polling for the result would cost the server more."""


@workflow.defn(sandboxed=False)
class Trivial:
    """A workflow that does nothing."""

    ends: ClassVar[Ends] = {}

    @workflow.run
    async def run(self) -> None:
        """Call back and end."""
        self.ends.pop(workflow.info().workflow_id, lambda: None)()


async def main(address: str) -> None:
    """Run workflows until the input ends."""
    client = await Client.connect(address)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with Worker(client, task_queue=QUEUE, workflows=[Trivial], workflow_runner=UnsandboxedWorkflowRunner()):
        print(READY, flush=True)
        while line := await lines.readline():
            each = int(line) // AT_ONCE
            await asyncio.gather(*(_run_in_sequence(client, each) for _ in range(AT_ONCE)))
            print(READY, flush=True)


async def _run_in_sequence(client: Client, count: int) -> None:
    for _ in range(count):
        job, ended = f"trivial-{uuid4()}", asyncio.Event()
        Trivial.ends[job] = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
        # Eager as in Maestro: the worker of this process gets the first task with the start.
        await client.start_workflow(Trivial.run, id=job, task_queue=QUEUE, request_eager_start=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
