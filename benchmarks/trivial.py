"""A worker of the least workflow there is, without a sandbox: the unit in which the cost of a message is told.

``python -m benchmarks.trivial <address>`` runs as many workflows as each line of its input says, and says when they
have ended.
"""

import asyncio
import sys
from uuid import uuid4

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

QUEUE = "benchmark"
AT_ONCE = 50
READY = "ready"


@workflow.defn(sandboxed=False)
class Trivial:
    """A workflow that does nothing."""

    @workflow.run
    async def run(self) -> None:
        """End."""


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
        await client.execute_workflow(Trivial.run, id=f"trivial-{uuid4()}", task_queue=QUEUE)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
