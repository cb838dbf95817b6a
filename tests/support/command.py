"""The installed command ``maestro``, as a person runs it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.forking import PATIENCE, Ended, forked, send_signal
from tests.support.postgresql import store_environment

__all__ = ["COMMAND", "PATIENCE", "Ended", "Ports", "UpProcess", "maestro", "up"]

COMMAND = Path(sys.executable).with_name("maestro")


@dataclass(frozen=True)
class Ports:
    """Where one Maestro listens."""

    webui: int
    web: int
    temporal: int
    temporal_ui: int

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``maestro up`` that say so."""
        return (
            f"--port={self.webui}",
            f"--web-port={self.web}",
            f"--temporal-port={self.temporal}",
            f"--temporal-ui-port={self.temporal_ui}",
        )


@dataclass
class UpProcess:
    """A running ``maestro up`` and what it has said so far."""

    process: asyncio.subprocess.Process
    said: list[str] = field(default_factory=list)

    async def ready(self) -> None:
        """Return when it says that it is ready; raises with all it said if it never does."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while line := (await self.process.stdout.readline()).decode():
                self.said.append(line.rstrip())
                if line.startswith("Maestro is ready"):
                    return
        raise AssertionError("it never got ready:\n" + "\n".join(self.said))

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        send_signal(self.process, number)
        await asyncio.wait_for(self.process.communicate(), PATIENCE)
        assert self.process.returncode is not None
        return self.process.returncode


async def maestro(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None, piped: str | None = None
) -> Ended:
    """Run a command to its end; ``piped`` is its standard input, which is empty without it."""
    return await asyncio.to_thread(forked, *arguments, folder=folder, environment=environment, piped=piped)


@asynccontextmanager
async def up(folder: Path, ports: Ports, command: Path = COMMAND) -> AsyncIterator[UpProcess]:
    """Run ``maestro up`` in a folder, ready when the block begins, ended when it is over."""
    # Another command has been installed without the driver of PostgreSQL.
    store = store_environment(folder / "data" / "maestro.db") if command == COMMAND else {}
    process = await asyncio.create_subprocess_exec(
        command,
        "up",
        *ports.options,
        cwd=folder,
        env={**os.environ, **store},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    running = UpProcess(process)
    try:
        await running.ready()
        yield running
    finally:
        await running.end()
