"""Processes of our own that start in a moment: they are forked from one that has imported everything already."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.popen_forkserver import Popen
from pathlib import Path

from maestro.cli.main import main

FORKING = get_context("forkserver")
FORKING.set_forkserver_preload(["tests.support.preloaded"])

PATIENCE = 60.0
"""Seconds for what must happen; long, because only a failure ever takes them."""

STREAMS = (("input", os.O_RDONLY), ("output", os.O_WRONLY | os.O_CREAT), ("errors", os.O_WRONLY | os.O_CREAT))
"""Files that stand for the standard streams of a command, in the order of their descriptors."""


Around = Callable[[], AbstractContextManager[None]]
"""What surrounds a command in its process; it must be a function of a module, or a ``partial`` of one."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str
    errors: str


@dataclass(frozen=True)
class Given:
    """What a command is started with."""

    arguments: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]


def forked(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None, piped: str | None = None
) -> Ended:
    """Run the command ``maestro`` to its end in a process and a folder of its own; ``piped`` is its standard input.

    Only the installed script and its imports, which take seconds, are left out; where these are what a test is about,
    it starts ``COMMAND`` of ``tests.support.command``.
    """
    given = Given(arguments, folder, {**os.environ, **(environment or {})})
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, name) for name, _ in STREAMS]
        files[0].write_text(piped or "")
        # Not by its own start(), which looks after the ended processes of other threads, and takes their exit codes.
        process = Popen(FORKING.Process(target=be_the_command, args=(given, files), daemon=True))
        code = process.wait(PATIENCE)
        if code is None:
            process.kill()
            raise TimeoutError(f"it did not end: maestro {' '.join(arguments)}")
        return Ended(code, *(file.read_text() for file in files[1:]))


class Lasting:
    """The command ``maestro`` in a forked process that runs until it is told to end; it looks like one of asyncio's.

    ``stdout`` has its errors too.
    """

    def __init__(self, popen: Popen, stdout: asyncio.StreamReader) -> None:
        self.stdout = stdout
        self._popen = popen

    @classmethod
    async def start(cls, *arguments: str, folder: Path, around: Around = nullcontext) -> "Lasting":
        """Start it, and return without waiting for anything it does."""
        given = Given(arguments, folder, dict(os.environ))
        reading, writing = FORKING.Pipe(duplex=False)
        popen = await asyncio.to_thread(
            Popen, FORKING.Process(target=be_told, args=(given, writing, around), daemon=True)
        )
        writing.close()
        stdout = asyncio.StreamReader()
        output = os.fdopen(os.dup(reading.fileno()), "rb")
        reading.close()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), output)
        return cls(popen, stdout)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._popen.poll()

    async def wait(self) -> int:
        """Return its exit code when it has ended."""
        code = await asyncio.to_thread(self._popen.wait, PATIENCE)
        if code is None:
            raise TimeoutError
        return code


def send_signal(process: asyncio.subprocess.Process | Lasting, number: signal.Signals) -> None:
    """Send a signal to a process; harmless when it has ended.

    The method of asyncio's process asks the kernel whether the process has ended. If it has, that question takes the
    exit code, and ``wait`` returns 255.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def block_until_ended(process: asyncio.subprocess.Process) -> None:
    """Return when a process has ended; the event loop is blocked until then, so it has seldom taken the exit code."""
    with suppress(ChildProcessError):  # The event loop has the exit code already.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def be_the_command(given: Given, files: list[Path]) -> None:
    """Be the process of a command, to its end."""
    for descriptor, (file, (_, flags)) in enumerate(zip(files, STREAMS, strict=True)):
        os.dup2(os.open(file, flags), descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it is that of the process
    run_as(given)


def be_told(given: Given, output: Connection, around: Around) -> None:
    """Be the process of a command that has no input, and tells everything in one place."""
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    with around():
        run_as(given)


def run_as(given: Given) -> None:
    """Run the command line as if this process had been started with it."""
    os.environ.clear()
    os.environ.update(given.environment)
    os.chdir(given.folder)
    sys.argv = ["maestro", *given.arguments]
    main()
