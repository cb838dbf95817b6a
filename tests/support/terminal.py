"""A command at a terminal: keys go in, and what the screen got comes out."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.command import COMMAND, PATIENCE
from tests.support.instance import until

CTRL_C = "\x03"
CTRL_D = "\x04"
UP = "\x1b[A"
IN_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


@dataclass
class Terminal:
    """A running command; ``screen`` is everything it wrote, escape sequences and echoed keys included."""

    process: asyncio.subprocess.Process
    screen: str = ""
    _seen: int = 0

    async def type(self, keys: str) -> None:
        """Press keys."""
        assert self.process.stdin is not None
        self.process.stdin.write(keys.encode())
        await self.process.stdin.drain()

    async def interrupt(self) -> None:
        """Press Ctrl-C once the command waits for keys or for an answer.

        What was typed before must be on the screen. Python's readline writes the prompt and what a key does before it
        waits for the next key, and a signal that comes between the two is not noticed until that key.
        """
        (command,) = psutil.Process(self.process.pid).children()
        await until(lambda: command.status() == psutil.STATUS_SLEEPING, what="a command that waits")
        await self.type(CTRL_C)

    async def shows(self, text: str) -> None:
        """Return when the text appears behind what earlier calls waited for."""
        async with asyncio.timeout(PATIENCE):
            while (at := self.screen.find(text, self._seen)) < 0:
                assert await self._read(), f"it ended without showing {text!r}:\n{self.screen}"
        self._seen = at + len(text)

    async def ended(self) -> int:
        """Return the exit code when it has ended by itself."""
        async with asyncio.timeout(PATIENCE):
            while await self._read():
                pass
            return await self.process.wait()

    async def _read(self) -> bool:
        assert self.process.stdout is not None
        data = await self.process.stdout.read(4096)
        self.screen += data.decode(errors="replace")
        return bool(data)


@asynccontextmanager
async def terminal(*arguments: str, folder: Path, environment: Mapping[str, str]) -> AsyncIterator[Terminal]:
    """Run ``maestro`` at a terminal; it is gone when the block is over."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        IN_A_TERMINAL,
        COMMAND,
        *arguments,
        cwd=folder,
        env={**os.environ, "TERM": "xterm", **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Terminal(process)
    finally:
        if process.returncode is None:
            process.kill()  # the terminal is gone with it, and the command gets a hang-up
            await process.wait()
