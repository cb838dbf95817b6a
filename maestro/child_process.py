"""Runs child programs; the whole process group of a program is ended before the program's output is read.

Input and output are files, not pipes. A grandchild that keeps a pipe open makes a finished program look unfinished: a
complete answer became a timeout (measured). A program also hangs when nothing reads its pipe.
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

# This shell process reads the id of a process group; when Maestro is killed, its input ends and it kills the group.
_GUARD = ("/bin/sh", "-c", 'read -r group && { read -r _; kill -s KILL -- "-$group"; }')

_PLAIN_VARIABLES = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR"))


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """A program to run, with its arguments, working folder, environment variables and input."""

    arguments: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    input: bytes = b""


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of a program: its run time in seconds, and the bytes of its standard output and its error output."""

    seconds: float
    output_bytes: int


class ProgramEnd(Enum):
    """How a program ended: by itself, or stopped because it ran too long or wrote too much."""

    EXITED = auto()
    TOO_LONG = auto()
    TOO_MUCH = auto()


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The result of a program; ``code`` is valid only for ``EXITED``, and negative if a signal ended the program."""

    outcome: ProgramEnd
    code: int
    output: bytes
    errors: bytes


async def run_program(command: ProgramCommand, limits: ProgramLimits) -> ProgramResult:
    """Run a program until it exits or exceeds a limit, then end its remaining child processes.

    A cancellation, or a kill of this process, also ends the program. Raises ``OSError`` when the program cannot be
    started. Outputs are truncated at the limit. A process that left the process group, as a daemon does, is not ended.
    """
    child = _RunningProgram(command)
    try:
        await asyncio.to_thread(child.start_program)
        outcome = await child.wait_for_end(limits)
        await child.end_process_group()
        return await asyncio.to_thread(child.read_result, outcome, limits.output_bytes)
    finally:
        await child.end_process_group()
        child.close_files()


def plain_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that any program needs, without keys, passwords and Maestro's variables."""
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
        self._group_ended = False

    def _open_file(self) -> BinaryIO:
        return self._files.enter_context(tempfile.TemporaryFile())

    def start_program(self) -> None:
        """Start the program, unless a cancellation called ``end_process_group`` before this thread began."""
        with tempfile.TemporaryFile() as input_file:
            input_file.write(self._command.input)
            input_file.seek(0)
            with self._start_lock:
                if not self._cancelled:
                    # The guard kills the program's process group when this process is killed.
                    self._guard = subprocess.Popen(  # noqa: S603 - a fixed command
                        _GUARD,
                        bufsize=0,
                        env={},
                        stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                    self._process = subprocess.Popen(  # noqa: S603 - no shell reads the command
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

    async def wait_for_end(self, limits: ProgramLimits) -> ProgramEnd:
        """Return when the program has exited or exceeded a limit, even if its child processes still run."""
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

    async def end_process_group(self) -> None:
        """Send SIGTERM to the process group, and SIGKILL after the grace period or at once on a second cancellation."""
        with self._start_lock:
            self._cancelled = True
        if self._process is None or self._group_ended:
            return
        try:
            if not await self._ends_after_signal(signal.SIGTERM):
                await self._ends_after_signal(signal.SIGKILL)
        finally:
            if not self._group_ended:
                self._send_signal(signal.SIGKILL)
                self._process.poll()

    def read_result(self, outcome: ProgramEnd, max_bytes: int) -> ProgramResult:
        """Return the program's outcome and exit code, and its outputs up to ``max_bytes`` each."""
        assert self._process is not None
        for file in self._outputs:
            file.seek(0)
        output, errors = (file.read(max_bytes) for file in self._outputs)
        return ProgramResult(outcome, self._process.returncode or 0, output, errors)

    def close_files(self) -> None:
        """Close the output files, and end the guard process so that the guard does not kill the process group."""
        self._files.close()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()

    async def _ends_after_signal(self, number: signal.Signals) -> bool:
        assert self._process is not None
        self._process.poll()
        alive = self._send_signal(number)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while alive:
                    await asyncio.sleep(_POLL_SECONDS)
                    self._process.poll()
                    alive = self._send_signal(0)
        self._group_ended = not alive
        return self._group_ended

    def _send_signal(self, number: int) -> bool:
        """Send a signal to the process group (0 only tests the group); return false if the group has no process.

        The group's number cannot mean another group: it is in use while the group has a process, and the system reuses
        a freed number only after all others.
        """
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        # On macOS, PermissionError means that the group has only zombie processes.
        except (ProcessLookupError, PermissionError):
            return False
        return True


async def _wait_for_exit(process: "subprocess.Popen[bytes]") -> None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # The platform is not Linux, or a sandbox forbids pidfd_open.
        while process.poll() is None:  # noqa: ASYNC110 - asyncio offers no event for the exit of a Popen process
            await asyncio.sleep(_POLL_SECONDS)
        return
    loop, exited = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
