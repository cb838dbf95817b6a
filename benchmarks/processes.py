"""Processes that are measured: started, looked at, and ended whatever happens."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
GRACE = 25.0
"""Seconds between asking a process to end and forcing it."""
MIB = 2**20


@dataclass(frozen=True)
class Memory:
    """MiB: all that is mapped and present, our share of what several map, and what would be freed if we ended."""

    rss: float
    pss: float
    uss: float


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds that processes have used so far, by the name we give them."""

    seconds: Mapping[str, float]

    def since(self, earlier: "CpuTimes") -> Mapping[str, float]:
        """Return the CPU seconds used meanwhile."""
        return {name: used - earlier.seconds[name] for name, used in self.seconds.items()}


def cpu_times(pids: Mapping[str, int]) -> CpuTimes:
    """Look at the clocks of these processes; children that have ended count with their parent."""
    return CpuTimes({name: _cpu(pid) for name, pid in pids.items()})


def memory_of(pid: int) -> Memory:
    """Look at the memory of one process."""
    info = psutil.Process(pid).memory_full_info()
    pss = getattr(info, "pss", info.rss)  # only Linux tells
    return Memory(rss=info.rss / MIB, pss=pss / MIB, uss=info.uss / MIB)


def bare_environment() -> dict[str, str]:
    """Return what a program needs, and no key of a provider and no setting of Maestro's."""
    kept = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in kept if name in os.environ}


@asynccontextmanager
async def running(command: Sequence[str], log: Path, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command in a session of its own, so that Ctrl-C reaches us first; its standard error goes to the log."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**bare_environment(), **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        await asyncio.shield(asyncio.create_task(ended(process)))


def end_on_sigterm() -> None:
    """Let SIGTERM end this task as Ctrl-C does: everything that was started is ended first."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def sources_of(ref: str, folder: Path) -> Path:
    """Return a folder with the sources of a commit, which run in this environment; raises ``RuntimeError``."""
    tree, archive = folder / "base", folder / "base.tar"
    command = ("git", "archive", "--format=tar", f"--output={archive}", ref)
    git = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, problem = await git.communicate()
    if git.returncode != 0:
        raise RuntimeError(problem.decode().strip())
    await asyncio.to_thread(shutil.unpack_archive, archive, tree, filter="data")
    return tree


async def ended(process: asyncio.subprocess.Process) -> None:
    """Ask the process to end, force it when it does not, and return when it has."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    reading = asyncio.create_task(process.communicate())  # a full pipe would keep it from ending
    try:
        async with asyncio.timeout(GRACE):
            await asyncio.shield(reading)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await reading


async def until_said(process: asyncio.subprocess.Process, words: str, patience: float) -> list[str]:
    """Return what a process printed up to and including the line with these words; raises ``RuntimeError``."""
    assert process.stdout is not None
    said: list[str] = []
    async with asyncio.timeout(patience):
        while line := (await process.stdout.readline()).decode():
            said.append(line.rstrip())
            if words in line:
                return said
    raise RuntimeError("it ended without a word of it:\n" + "\n".join(said))


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
