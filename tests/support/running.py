"""Maestro as a process that a test may kill and start again, with everything that belongs to it on free ports."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from maestro.bootstrap.up import READY
from maestro.cli.main import run
from temporal.server_process import read_record
from tests.support.composed import forked
from tests.support.crashing import MAESTRO, arm, disarm
from tests.support.forking import FORKING, PATIENCE
from tests.support.llm_server import LLMServer
from tests.support.ports import free_ports

Options = Mapping[str, Any]


class Maestro:
    """One data folder, its ports, and the process that has it now; ``said`` is what it told, over all its lives."""

    def __init__(self, folder: Path, llm: LLMServer, options: Options) -> None:
        """``options`` are sections of the configuration that differ from this file's."""
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        self.log = folder / "stderr.log"
        self.llm = llm
        self.said: list[str] = []
        ports = free_ports(4)
        self.web_port, self.webui_port, self.temporal_port, _ = ports
        self._config = folder / "maestro.json"
        self._config.write_text(json.dumps(_configuration(self.data, llm, tuple(ports), options)))
        self._process: ForkServerProcess | None = None
        self._news = asyncio.Condition()
        self._ended = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and not self._ended.is_set()

    async def start(self) -> None:
        """Start it and return when it is ready for messages and works on them."""
        begun = self.begin()
        await self.says(READY, begun)

    async def revive(self) -> None:
        """Let it live with nothing armed, whatever a test before has left."""
        disarm(self.data)
        if not self.alive:
            await self.start()

    def begin(self) -> int:
        """Start it without waiting; return how much it had said before."""
        reading, writing = FORKING.Pipe(duplex=False)
        self._ended.clear()
        process = FORKING.Process(target=forked, args=(self._config, self.log, writing.send), daemon=True)
        process.start()
        writing.close()
        self._process = process
        asyncio.get_running_loop().add_reader(reading.fileno(), self._listen, reading)
        return len(self.said)

    async def says(self, words: str, since: int = 0) -> None:
        """Return when it has said these words; raises ``AssertionError`` when it ends without them."""

        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self._heard(words, since) or self._ended.is_set())
        assert self._heard(words, since), f"it ended without saying {words!r}: {self.story()}"

    async def command(self, *words: str | Path) -> int:
        """Run a command of Maestro with its configuration, and return the exit code."""
        return await asyncio.to_thread(run, ["--config", str(self._config), *map(str, words)])

    async def died(self) -> int:
        """Return its exit code when it has ended."""
        async with asyncio.timeout(PATIENCE):
            await self._ended.wait()
        assert self._process is not None
        await asyncio.to_thread(self._process.join)
        return self._process.exitcode or 0

    async def crash_at(self, point: str, look: Callable[[], None] = lambda: None) -> None:
        """Return when the process has died at this point and lives again; ``look`` is called while it is dead.

        What is armed may let it die once more before it says that it is ready: that is the next crash.
        """
        assert await self.died() == -signal.SIGKILL, point
        look()
        begun = self.begin()
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self._heard(READY, begun) or self._ended.is_set())
        assert self._heard(READY, begun) or await self.died() == -signal.SIGKILL, self.story()

    def _heard(self, words: str, since: int) -> bool:
        return any(words in line for line in self.said[since:])

    def story(self) -> str:
        """Return what it has told, and the end of what it wrote to standard error."""
        return f"{self.said}, {self.log.read_text()[-2000:]}"

    def arm(self, point: str, times: int = 1, victims: Sequence[str] = (MAESTRO,)) -> None:
        """Let it die, or its Temporal server, or both, when it reaches this point."""
        arm(self.data, point, times, victims)

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, a kill unless told otherwise, and return the exit code when it has ended."""
        self.send_signal(number)
        return await self.died()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill_temporal(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, a kill unless told otherwise, to the Temporal server alone."""
        record = read_record(self.data / "temporal.json")
        assert record is not None
        os.kill(record.pid, number)

    async def end(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self.alive:
            with contextlib.suppress(TimeoutError):
                await self.kill()
        record = read_record(self.data / "temporal.json")
        if record is not None and record.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGKILL)

    def _listen(self, reading: Connection) -> None:
        try:
            self.said.append(reading.recv())
        except EOFError:
            asyncio.get_running_loop().remove_reader(reading.fileno())
            reading.close()
            self._ended.set()
        asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


@asynccontextmanager
async def running(folder: Path, llm: LLMServer, **options: Any) -> AsyncIterator[Maestro]:
    """Run Maestro in a folder; whatever happens, nothing of it is left afterwards."""
    maestro = Maestro(folder, llm, options)
    try:
        await maestro.start()
        yield maestro
    finally:
        await maestro.end()


def _configuration(data: Path, llm: LLMServer, ports: tuple[int, ...], options: Options) -> Mapping[str, object]:
    web, webui, temporal, temporal_ui = ports
    account = {"name": "local", "provider": "openai", "apiKey": "sk-test", "baseUrl": llm.base_url("openai")}
    sections: dict[str, dict[str, object]] = {
        "web": {"host": "127.0.0.1", "port": web},
        "webui": {"host": "127.0.0.1", "port": webui},
        "temporal": {"port": temporal, "uiPort": temporal_ui, "heartbeatSeconds": 1},
        "llm": {"accounts": [account], "totalTimeoutSeconds": 30},
        "jobs": {"dispatchSeconds": 0.1, "reconcileSeconds": 1, "stopPollSeconds": 0.1, "drainSeconds": 0.5},
    }
    differing = {
        name: {**sections.get(name, {}), **section} if isinstance(section, Mapping) else section
        for name, section in options.items()
    }
    return {"dataDir": str(data), **sections, **differing}
