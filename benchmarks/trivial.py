"""A worker of the least workflow there is, without a sandbox: the unit in which the cost of a message is told.

``python -m benchmarks.trivial <address>`` runs as many workflows as each line of its input says, and says when they
have ended.
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
"""What is called when a workflow ends, by its id; a question for its result would cost the server more."""


@workflow.defn(sandboxed=False)
class Trivial:
    """A workflow that does nothing."""

    ends: ClassVar[Ends] = {}

    @workflow.run
    async def run(self) -> None:
        """End."""
        self.ends.pop(workflow.info().workflow_id, lambda: None)()


async def main(address: str) -> None:
    """Work until the input ends."""
    client = await Client.connect(address)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with Worker(client, task_queue=QUEUE, workflows=[Trivial], workflow_runner=UnsandboxedWorkflowRunner()):
        print(READY, flush=True)
        while line := await lines.readline():
            each = int(line) // AT_ONCE
            await asyncio.gather(*(_in_a_row(client, each) for _ in range(AT_ONCE)))
            print(READY, flush=True)


async def _in_a_row(client: Client, count: int) -> None:
    for _ in range(count):
        job, ended = f"trivial-{uuid4()}", asyncio.Event()
        Trivial.ends[job] = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
        # Eager as Maestro's own: a worker in the same process begins without being asked for work.
        await client.start_workflow(Trivial.run, id=job, task_queue=QUEUE, request_eager_start=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
