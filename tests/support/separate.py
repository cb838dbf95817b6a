"""Maestro as the separate processes of a platform team, against a Temporal server that somebody else started."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from maestro import telemetry
from tests.support.forking import PATIENCE, Around, Lasting, send_signal
from tests.support.llm_server import LLMServer
from tests.support.ports import free_ports

SERVER = Path(sys.executable).with_name("temporal")
LOOK = 0.05
"""Seconds between two questions whether a server is ready."""
EXPORT_CLAIM = timedelta(seconds=10)
ANSWER_TIMEOUT = timedelta(seconds=2)

SHARED_KEYS = {name: b64encode(name.encode().ljust(32)).decode() for name in ("signing", "secrets")}
"""The section ``keys`` of processes that share a store and no data folder."""

READY = {"worker": "The worker is ready", "api": "The API is ready", "connect": "The connectors are ready"}
STANDS_BY = "runs the connector web/default; this process takes over after it"
"""What a process of connectors says while another one has the lease."""
FAST = ("--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL")
"""Options with which a Temporal server keeps up with a hundred messages: the stock one stalls."""


Started = asyncio.subprocess.Process | Lasting


class Part:
    """One process, which may be killed and started again; ``said`` is what it told, over all its lives."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.said: list[str] = []
        self._command = command
        self._folder = folder
        self._process: Started | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._alive = False

    async def begin(self) -> int:
        """Start it without waiting; return how much it had said before."""
        since, self._alive = len(self.said), True
        self._process = await self._start()
        self._reading = asyncio.create_task(self._read(self._process))
        return since

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._alive

    async def says(self, words: str, since: int = 0, otherwise: str = "") -> None:
        """Return when it has said these words, or others; raises ``AssertionError`` when it ends without them."""
        wanted = [one for one in (words, otherwise) if one]

        def heard() -> bool:
            return any(one in line for line in self.said[since:] for one in wanted)

        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: heard() or not self._alive)
        assert heard(), f"it ended without saying {words!r}: {self.said}"

    async def ended(self) -> None:
        """Return when it has ended."""
        async with self._news:
            await self._news.wait_for(lambda: not self._alive)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, a kill unless told otherwise, and return the exit code; harmless when it has ended."""
        if self._process is None:
            return 0
        send_signal(self._process, number)
        code = await asyncio.wait_for(self._process.wait(), PATIENCE)
        assert self._reading is not None
        await self._reading
        return code

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, as one that stops it or lets it go on."""
        assert self._process is not None
        send_signal(self._process, number)

    async def _start(self) -> Started:
        return await asyncio.create_subprocess_exec(
            *self._command, cwd=self._folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )

    async def _read(self, process: Started) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.said.append(line.decode().rstrip())
            async with self._news:
                self._news.notify_all()
        async with self._news:
            self._alive = False
            self._news.notify_all()


class ForkedPart(Part):
    """A process of ours; ``command`` is what stands behind ``maestro``, ``around`` what surrounds it."""

    def __init__(self, command: list[str], folder: Path, around: Around = nullcontext) -> None:
        super().__init__(command, folder)
        self._around = around

    async def _start(self) -> Started:
        return await Lasting.start(*self._command, folder=self._folder, around=self._around)


class TemporalApart:
    """A Temporal server as its makers ship it: without our settings but ``more``, and without our search attributes."""

    def __init__(self, folder: Path, port: int, *more: str) -> None:
        self.port = port
        database = folder / "temporal.db"
        options = ["--db-filename", str(database), "--port", str(port), "--headless", "--log-level", "error", *more]
        self._part = Part([str(SERVER), "server", "start-dev", *options], folder)

    async def start(self) -> None:
        """Start it and return when it answers: before, it opens its port for a moment to see whether it is free."""
        await self._part.begin()
        client = await Client.connect(f"127.0.0.1:{self.port}", lazy=True)
        request = DescribeNamespaceRequest(namespace=client.namespace)
        async with asyncio.timeout(PATIENCE):
            while True:
                # The SDK raises RuntimeError when the first connection fails.
                with contextlib.suppress(RPCError, RuntimeError):
                    await client.workflow_service.describe_namespace(request, timeout=ANSWER_TIMEOUT)
                    return
                await asyncio.sleep(LOOK)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it."""
        return await self._part.end(number)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, as one that stops it or lets it go on."""
        self._part.send_signal(number)


class Separate:
    """Worker, API and web connector on one data folder, each a process started by its own command."""

    def __init__(self, folder: Path, llm: LLMServer, sections: Mapping[str, Any], around: Around = nullcontext) -> None:
        temporal, self.web_port, self.api_port, worker, connect = free_ports(5)
        self.health_ports = {"worker": worker, "connect": connect}
        self.folder = folder
        self._around = around
        self.data = folder / "data"
        self.temporal = TemporalApart(folder, temporal)
        self.config = folder / "maestro.json"
        self.config.write_text(json.dumps({**self._sections(llm), **sections}))
        self.worker = self.another("worker")
        self.api = self.another("api")
        self.connect = self.another("connect", "web")

    @property
    def parts(self) -> dict[str, Part]:
        """The processes by the command that starts them."""
        return {"worker": self.worker, "api": self.api, "connect": self.connect}

    def another(self, *command: str) -> Part:
        """Return one more process, not yet started; an option of its own wins over the common ones."""
        return ForkedPart(["--config", str(self.config), *command], self.folder, self._around)

    async def start(self) -> None:
        """Start everything and return when all are ready."""
        await self.temporal.start()
        await asyncio.gather(*(self.revive(name) for name in self.parts))

    async def revive(self, name: str) -> None:
        """Start the process of this command, and return when it is ready."""
        part = self.parts[name]
        await part.says(READY[name], await part.begin())

    async def end(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        await asyncio.gather(*(part.end() for part in self.parts.values()))
        await self.temporal.end()

    def _sections(self, llm: LLMServer) -> dict[str, Any]:
        account = {"name": "main", "provider": "openai", "model": "gpt-4o-mini", "apiKey": "key-of-the-account"}
        return {
            "dataDir": str(self.data),
            "temporal": {"address": f"127.0.0.1:{self.temporal.port}", "heartbeatSeconds": 1},
            "webui": {"port": self.api_port},
            "web": {"port": self.web_port, "typingSeconds": 0.5},
            "health": {f"{name}Port": port for name, port in self.health_ports.items()},
            "llm": {"accounts": [{**account, "baseUrl": llm.base_url("openai")}]},
            "jobs": {"backoffBaseMinutes": 0.005, "reconcileSeconds": 0.5, "drainSeconds": 5},
            "logs": {"level": "error"},
        }


@contextmanager
def short_export_claims() -> Iterator[None]:
    """Let a process that died keep the others from exporting traces for ten seconds, and not for a minute."""
    with mock.patch.object(telemetry, "CLAIM", EXPORT_CLAIM):
        yield


@asynccontextmanager
async def separate(
    folder: Path, server: LLMServer, around: Around = nullcontext, /, **sections: Any
) -> AsyncIterator[Separate]:
    """Run everything for the length of a block; ``around`` surrounds each of the processes."""
    assert not {name for name in os.environ if name.startswith("MAESTRO_") and not name.startswith("MAESTRO_TEST_")}
    maestro = Separate(folder, server, sections, around)
    try:
        await maestro.start()
        yield maestro
    finally:
        await maestro.end()
