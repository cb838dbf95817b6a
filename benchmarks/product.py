"""Maestro as it is measured: the installed command, its configuration in a fresh folder, on free ports."""

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
from benchmarks.processes import ROOT, running, until_said
from temporal.server_process import read_record
from tests.support.instance import free_port, merged

COMMAND = str(Path(sys.executable).with_name("maestro"))
READY = "Maestro is ready."
STARTS_WITHIN = 60.0

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """A folder with a configuration and a data folder in it, not running; ``tree`` has the sources that will run."""

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
    """A running Maestro; ``ready_after`` is seconds from its start to its word that it is ready."""

    setting: Setting
    pid: int
    ready_after: float

    @property
    def web_port(self) -> int:
        """Where people talk to it."""
        return self.setting.web_port

    @property
    def server_pid(self) -> int:
        """The embedded Temporal server's process."""
        record = read_record(self.setting.data / "temporal.json")
        assert record is not None, "no embedded server runs"
        return record.pid


def settle(folder: Path, model: Model | None, tree: Path = ROOT, **options: Any) -> Setting:
    """Write a configuration into a new folder; without a model the built-in demo model answers, and at once."""
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
    """Run ``maestro up``; whatever happens, neither it nor its Temporal server is left afterwards."""
    started = time.perf_counter()
    try:
        line, sources = (*command, "up", "--config", str(setting.config)), str(setting.tree)
        async with running(line, setting.folder / "stderr.log", PYTHONPATH=sources) as process:
            await until_said(process, READY, STARTS_WITHIN)
            ready_after = time.perf_counter() - started
            drain = asyncio.create_task(_unread(process))
            try:
                yield Product(setting, process.pid, ready_after)
            finally:
                drain.cancel()
                await asyncio.gather(drain, return_exceptions=True)
    finally:
        _end_server(setting)


async def _unread(process: asyncio.subprocess.Process) -> None:
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
