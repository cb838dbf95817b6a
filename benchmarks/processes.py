"""Processes to measure: their start, CPU time, memory and end."""

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
LOG_SHOWN = 4000
"""The characters at the end of a standard error that an error shows."""
GRACE = 25.0
"""Seconds between SIGTERM and SIGKILL."""
MIB = 2**20


@dataclass(frozen=True)
class Memory:
    """MiB: resident memory, the same with shared pages divided among their processes, and private memory."""

    rss: float
    pss: float
    uss: float


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds of processes so far, by a name of each."""

    seconds: Mapping[str, float]

    def since(self, earlier: "CpuTimes") -> Mapping[str, float]:
        """Return the CPU seconds between both."""
        return {name: used - earlier.seconds[name] for name, used in self.seconds.items()}


def cpu_times(pids: Mapping[str, int]) -> CpuTimes:
    """Return the CPU times of these processes."""
    return CpuTimes({name: _cpu(pid) for name, pid in pids.items()})


def memory_of(pid: int) -> Memory:
    """Return the memory of a process."""
    info = psutil.Process(pid).memory_full_info()
    pss = getattr(info, "pss", info.rss)  # only Linux has it
    return Memory(rss=info.rss / MIB, pss=pss / MIB, uss=info.uss / MIB)


def bare_environment() -> dict[str, str]:
    """Return the variables that a program needs, without keys of providers and settings of Maestro."""
    names = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in names if name in os.environ}


@asynccontextmanager
async def run_process(
    command: Sequence[str], log: Path, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command in a session of its own, which Ctrl-C does not reach; its standard error goes to the log."""
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
    except RuntimeError as error:
        error.add_note(f"its standard error:\n{_end_of(log)}")
        raise
    finally:
        await asyncio.shield(asyncio.create_task(end_process(process)))


def end_on_sigterm() -> None:
    """Cancel this task at SIGTERM, as asyncio does at Ctrl-C, so that it ends the processes that it has started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def sources_of(ref: str, folder: Path) -> Path:
    """Return a folder with the sources of a commit; raises ``RuntimeError`` if git does not know it."""
    tree, archive = folder / "base", folder / "base.tar"
    command = ("git", "archive", "--format=tar", f"--output={archive}", ref)
    git = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, problem = await git.communicate()
    if git.returncode != 0:
        raise RuntimeError(problem.decode().strip())
    await asyncio.to_thread(shutil.unpack_archive, archive, tree, filter="data")
    return tree


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM to a process, SIGKILL if it does not end in time, and wait for its end."""
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


async def wait_for_line(process: asyncio.subprocess.Process, words: str, seconds: float) -> list[str]:
    """Return the lines that a process prints, up to the one with these words; raises ``RuntimeError`` at its end."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(seconds):
        while line := (await process.stdout.readline()).decode():
            lines.append(line.rstrip())
            if words in line:
                return lines
    raise RuntimeError(f"the process ended without printing {words!r}:\n" + "\n".join(lines))


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-LOG_SHOWN:]


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
