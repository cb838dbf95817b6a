"""The Maestro to measure: the installed command with a configuration in a new folder, on free ports."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.model import Model
from benchmarks.processes import ROOT, run_process, wait_for_line
from temporal.server_process import read_record
from tests.support.instance import merged
from tests.support.ports import free_port

COMMAND = str(Path(sys.executable).with_name("maestro"))
READY = "Maestro is ready."
START_TIMEOUT = 60.0

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """A folder with a configuration and a data folder; ``tree`` has the sources to run."""

    folder: Path
    web_port: int
    tree: Path = ROOT
    options: Options = field(default_factory=dict)

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.folder / "maestro.json"

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"


@dataclass(frozen=True)
class Product:
    """A running Maestro; ``ready_after`` is the seconds from its start to its message that it is ready."""

    setting: Setting
    pid: int
    ready_after: float

    @property
    def web_port(self) -> int:
        """The port of the web connector."""
        return self.setting.web_port

    @property
    def server_pid(self) -> int:
        """The embedded Temporal server's process."""
        record = read_record(self.setting.data / "temporal.json")
        assert record is not None, "no embedded server runs"
        return record.pid


def create_setting(folder: Path, model: Model | None, tree: Path = ROOT, **options: Any) -> Setting:
    """Write a configuration into a new folder; without a model, the demo model answers at once."""
    folder.mkdir(parents=True)
    web_port = free_port()
    base: dict[str, Any] = {
        "dataDir": str(folder / "data"),
        "temporal": {"port": free_port(), "uiPort": free_port()},
        "webui": {"port": free_port()},
        "web": {"port": web_port},
        "health": {"workerPort": free_port(), "connectPort": free_port()},
        "logs": {"level": "warning"},
    }
    if model is None:
        base["llm"] = {"demoSeconds": 0}
    else:
        account = {"name": "local", "type": "api_key", "provider": "openai", "model": "gpt-4o-mini"}
        base["llm"] = {"accounts": [{**account, "apiKey": "sk-nobody", "baseUrl": model.url}]}
    setting = Setting(folder, web_port, tree, merged(base, options))
    setting.config.write_text(json.dumps(setting.options, indent=1))
    return setting


@asynccontextmanager
async def up(setting: Setting, command: Sequence[str] = (COMMAND,)) -> AsyncIterator[Product]:
    """Run ``maestro up`` until the block ends, and end it with its Temporal server also after a failure."""
    started = time.perf_counter()
    try:
        line, sources = (*command, "up", "--config", str(setting.config)), str(setting.tree)
        async with run_process(line, setting.folder / "stderr.log", PYTHONPATH=sources) as process:
            await wait_for_line(process, READY, START_TIMEOUT)
            ready_after = time.perf_counter() - started
            drain = asyncio.create_task(_discard_output(process))
            try:
                yield Product(setting, process.pid, ready_after)
            finally:
                drain.cancel()
                await asyncio.gather(drain, return_exceptions=True)
    finally:
        _end_server(setting)


async def _discard_output(process: asyncio.subprocess.Process) -> None:
    """Keep its output from filling the pipe."""
    assert process.stdout is not None
    while await process.stdout.readline():
        pass


def _end_server(setting: Setting) -> None:
    """End a Temporal server whose Maestro had to be killed."""
    record = read_record(setting.data / "temporal.json")
    if record is not None and record.is_running():
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)
