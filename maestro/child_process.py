"""Runs child programs; their whole process group is ended before their output is read.

Input and output are files. With pipes, a grandchild that keeps one open makes a finished program look unfinished
(measured: a complete answer became a timeout), and a program whose pipe is not read hangs.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO

GRACE_SECONDS = 2.0
"""Seconds between the signals SIGTERM and SIGKILL."""
OUTPUT_CHECK_SECONDS = 0.25
"""Seconds between two checks of the output's size."""
_POLL_SECONDS = 0.02

# The guard reads the id of the process group, then kills the group when its input ends, that is when Maestro ends.
_GUARD = ("/bin/sh", "-c", 'read -r group && { read -r _; kill -s KILL -- "-$group"; }')

_PLAIN_VARIABLES = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR"))


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """A program with its arguments, folder, environment and input."""

    arguments: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    input: bytes = b""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of a program: seconds of run time, and bytes of each output."""

    seconds: float
    output_bytes: int


class ProgramEnd(Enum):
    """The end of a program: by itself, or stopped because it ran too long or wrote too much."""

    EXITED = auto()
    TOO_LONG = auto()
    TOO_MUCH = auto()


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The result of a program; ``code`` counts only if it exited, and is negative after a signal."""

    outcome: ProgramEnd
    code: int
    output: bytes
    errors: bytes


async def run(command: ProgramCommand, limits: ProgramLimits) -> ProgramResult:
    """Run a program to its end, then end its remaining child processes, also when cancelled.

    When this process is killed, the program is too. Raises ``OSError`` when it cannot be started. Its outputs are
    truncated at the limit. A process that left the group, as a daemon does, is not ended.
    """
    child = _RunningProgram(command)
    try:
        await asyncio.to_thread(child.start)
        outcome = await child.wait(limits)
        await child.end()
        return await asyncio.to_thread(child.read_result, outcome, limits.output_bytes)
    finally:
        await child.end()
        child.close()


def plain_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that any program needs, without keys, passwords and Maestro's variables."""
    return {name: value for name, value in environment.items() if name in _PLAIN_VARIABLES or name.startswith("LC_")}


class _RunningProgram:
    def __init__(self, command: ProgramCommand) -> None:
        self._command = command
        self._files = ExitStack()
        self._outputs = (self._open_file(), self._open_file())
        self._start_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._gone = False

    def _open_file(self) -> BinaryIO:
        return self._files.enter_context(tempfile.TemporaryFile())

    def start(self) -> None:
        """Start the program, unless it was cancelled: a thread continues after its waiting task was cancelled."""
        with tempfile.TemporaryFile() as input_file:
            input_file.write(self._command.input)
            input_file.seek(0)
            with self._start_lock:
                if not self._cancelled:
                    self._guard = _start_guard()
                    self._process = subprocess.Popen(  # noqa: S603 - the caller says which program; no shell reads it
                        self._command.arguments,
                        cwd=self._command.folder,
                        env=dict(self._command.environment),
                        stdin=input_file,
                        stdout=self._outputs[0],
                        stderr=self._outputs[1],
                        start_new_session=True,
                    )
                    assert self._guard.stdin is not None
                    self._guard.stdin.write(b"%d\n" % self._process.pid)

    async def wait(self, limits: ProgramLimits) -> ProgramEnd:
        """Return when the program has exited or must be stopped, even if its child processes still run."""
        assert self._process is not None
        exit_ = asyncio.create_task(_wait_for_exit(self._process))
        try:
            async with asyncio.timeout(limits.seconds):
                exited = False
                while not exited:
                    exited = bool((await asyncio.wait({exit_}, timeout=OUTPUT_CHECK_SECONDS))[0])
                    if max(os.fstat(file.fileno()).st_size for file in self._outputs) > limits.output_bytes:
                        return ProgramEnd.TOO_MUCH
        except TimeoutError:
            return ProgramEnd.TOO_LONG
        finally:
            exit_.cancel()
            await asyncio.gather(exit_, return_exceptions=True)
        return ProgramEnd.EXITED

    async def end(self) -> None:
        """Ask the group to end, then force it; a second cancellation forces it at once."""
        with self._start_lock:
            self._cancelled = True
        if self._process is None or self._gone:
            return
        try:
            if not await self._ends_after(signal.SIGTERM):
                await self._ends_after(signal.SIGKILL)
        finally:
            if not self._gone:
                self._send(signal.SIGKILL)
                self._process.poll()

    def read_result(self, outcome: ProgramEnd, max_bytes: int) -> ProgramResult:
        """Return the result with the output."""
        assert self._process is not None
        for file in self._outputs:
            file.seek(0)
        output, errors = (file.read(max_bytes) for file in self._outputs)
        return ProgramResult(outcome, self._process.returncode or 0, output, errors)

    def close(self) -> None:
        """Close its unnamed files and end its guard, before the guard sees its input end."""
        self._files.close()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()

    async def _ends_after(self, number: signal.Signals) -> bool:
        assert self._process is not None
        self._process.poll()
        alive = self._send(number)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while alive:
                    await asyncio.sleep(_POLL_SECONDS)
                    self._process.poll()
                    alive = self._send(0)
        self._gone = not alive
        return self._gone

    def _send(self, number: int) -> bool:
        """Send a signal to the group, 0 for none; false when the group is empty.

        Its number cannot belong to another group: it stays taken while a process is in the group, and the system
        gives numbers out in turn.
        """
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        # On macOS, PermissionError means that the group has only zombie processes.
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _start_guard() -> "subprocess.Popen[bytes]":
    """Start the guard that ends a group of processes when this process is killed."""
    return subprocess.Popen(  # noqa: S603 - a program of Maestro
        _GUARD,
        bufsize=0,
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def _wait_for_exit(process: "subprocess.Popen[bytes]") -> None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, or a sandbox that forbids the call
        while process.poll() is None:  # noqa: ASYNC110 - no event reports the exit of a Popen
            await asyncio.sleep(_POLL_SECONDS)
        return
    loop, exited = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
