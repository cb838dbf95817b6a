"""The server's process: started so that it outlives us, recognised after a kill, and ended."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError

_PROC = Path("/proc/self/stat")
_POLL = 0.2 if _PROC.exists() else 1.0
"""Seconds between looks at a process that is not our child; without /proc each look costs a run of ``ps``."""

_MAX_LOG = 10 * 1024 * 1024
_TAIL = 8192

# The shell waits for a line before it becomes the server. So the record is on disk before there is a server to lose,
# and if we die first, the shell reads end-of-file and ends: no server can live that the next run does not know of.
_ON_A_LINE_BECOME = 'read -r _ && exec "$@" </dev/null'

_LOOKS = 4
_WATCH = f"""
serves() {{ {{ cat "/proc/$1/cmdline" || /bin/ps -ww -o command= -p "$1"; }} 2>/dev/null | grep -qF -- "$2"; }}
read -r _
missing=0
while serves "$1" "$2"; do
  if grep -qF "\\"pid\\": $1," "$3" 2>/dev/null; then missing=0; else missing=$((missing + 1)); fi
  if [ "$missing" -gt {_LOOKS} ]; then
    kill "$1"
    sleep "$5"
    serves "$1" "$2" && kill -s KILL "$1"
    exit
  fi
  sleep "$4"
done
"""
"""Ends a server that no Maestro can ever adopt: ours is gone, and no record names the server any more.

Its input ends when the process that started it does, however that ended. It is told the server's process id, its
database, the record, and in seconds the time between two looks and the time a server gets to end by itself.
"""


@dataclass(frozen=True)
class Sighting:
    """What the system says of a living process: when it started (in the system's own words) and its command line."""

    started: str
    command: str


def look(pid: int) -> Sighting | None:
    """Return the process ``pid`` as it is now; None when it is gone or only waits to be reaped.

    While it dies its command line may be empty already.
    """
    return look_in_proc(pid) if _PROC.exists() else look_with_ps(pid)


def look_in_proc(pid: int) -> Sighting | None:
    """``look`` on Linux."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    # A zombie whose other threads still die holds on to its ports and files.
    if fields[0] in "ZX" and int(fields[17]) <= 1:
        return None
    return Sighting(started=fields[19], command=os.fsdecode(command.rstrip(b"\0")).replace("\0", " "))


def look_with_ps(pid: int) -> Sighting | None:
    """``look`` where there is no /proc, as on macOS."""
    answer = subprocess.run(  # noqa: S603 - a fixed program and a number
        ["/bin/ps", "-ww", "-o", "state=,lstart=,command=", "-p", str(pid)],
        env={"LC_ALL": "C", "TZ": "UTC"},  # the start time must read the same after a change of clock or language
        capture_output=True,
        text=True,
        check=False,
    )
    fields = answer.stdout.split(maxsplit=6)
    if len(fields) < 7 or fields[0].startswith("Z"):
        return None
    return Sighting(started=" ".join(fields[1:6]), command=fields[6].rstrip())


class Record(BaseModel):
    """A server started by us, as the next run of Maestro finds it in the data folder."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: str
    command: tuple[str, ...]
    program: str
    """Tells one release of the program from another in the same place."""
    port: int
    ui_port: int
    watch: int = 0
    """The process id of what ends the server when nothing can adopt it any more; 0 in a record of an older release."""

    def exists(self) -> bool:
        """Whether this very process is still there: a process id alone is soon somebody else's."""
        seen = look(self.pid)
        return seen is not None and seen.started == self.started

    def serves(self) -> bool:
        """Whether it exists and is the server it was started as."""
        return look(self.pid) == Sighting(self.started, " ".join(self.command))

    def save(self, path: Path) -> None:
        """Write the record in one piece: a kill leaves the old one or the new one."""
        fresh = path.with_suffix(".new")
        fresh.write_text(self.model_dump_json(indent=2) + "\n")
        fresh.replace(path)


def read_record(path: Path) -> Record | None:
    """Return the record an earlier run left; None when there is none or it is not one."""
    try:
        return Record.model_validate_json(path.read_text())
    except (FileNotFoundError, ValidationError, UnicodeDecodeError):
        return None


def program_version(binary: Path) -> str:
    """Return a text that changes when the program file is replaced."""
    facts = binary.stat()
    return f"{facts.st_size}-{facts.st_mtime_ns}"


Child = asyncio.subprocess.Process


class ServerProcess:
    """A running server: our child, or one adopted from an earlier run, and the process that watches over it."""

    def __init__(self, record: Record, child: Child | None = None, watch: Child | None = None) -> None:
        """``child`` is None for an adopted server, which another process started and the system reaps."""
        self.record = record
        self._child = child
        self._watch = watch

    async def wait(self) -> None:
        """Return when the process has ended."""
        if self._child is not None:
            await self._child.wait()
            return
        while await asyncio.to_thread(self.record.exists):  # noqa: ASYNC110 - only a parent is told of an end
            await asyncio.sleep(_POLL)

    @property
    def was_killed(self) -> bool:
        """Whether it was our child and has been killed."""
        return self._child is not None and self._child.returncode == -signal.SIGKILL

    async def unwatch(self) -> None:
        """Let the watch over a server that has ended see that, and end."""
        if self._watch is not None:
            await end_watch(self._watch)

    async def end(self, grace: float) -> None:
        """Ask it to end, and force it after ``grace`` seconds; return when it is gone, and so is its watch."""
        await self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await self.wait()
        except TimeoutError:
            await self._signal(signal.SIGKILL)
            await self.wait()
        await self.unwatch()

    async def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            if self._child.returncode is None:
                self._child.send_signal(number)
        elif await asyncio.to_thread(self.record.exists):
            with suppress(ProcessLookupError):  # it may end between the look and the signal
                os.kill(self.record.pid, number)


async def hold(command: Sequence[str], environment: dict[str, str], output: BinaryIO) -> Child:
    """Make a process that becomes ``command`` when ``release`` is called, and ends when we die before."""
    return await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _ON_A_LINE_BECOME, "sh", *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=True,  # Ctrl-C in the terminal must reach us only: we drain first, the server ends last
    )


async def release(held: Child) -> None:
    """Let a held process become its command."""
    assert held.stdin is not None
    with suppress(ConnectionError):  # it was killed meanwhile: whoever waits for it learns that
        held.stdin.write(b"go\n")
        await held.stdin.drain()
    held.stdin.close()


async def watch_over(pid: int, database: Path, record: Path, orphaned: float, grace: float) -> Child:
    """Start what ends the server ``pid`` ``orphaned`` seconds after we are gone and no record names it any more."""
    arguments = (str(pid), str(database), str(record), f"{orphaned / _LOOKS:g}", f"{grace:g}")
    return await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _WATCH, "watch", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath},
        start_new_session=True,  # as the server: it outlives us
    )


async def end_watch(watch: Child) -> None:
    """Let a watch see that its server has ended; return when it has ended as well."""
    assert watch.stdin is not None
    watch.stdin.close()
    await watch.wait()


def dismiss_watch(record: Record, database: Path) -> None:
    """End the watch that an earlier run left with a server that we adopt: ours takes its place."""
    seen = look(record.watch) if record.watch else None
    if seen is not None and f"watch {record.pid} {database}" in seen.command:
        with suppress(ProcessLookupError):
            os.kill(record.watch, signal.SIGTERM)


def open_log(path: Path) -> BinaryIO:
    """Open the server's log for appending; one that has passed 10 MB becomes ``<name>.1`` first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _MAX_LOG:
        path.replace(path.with_name(path.name + ".1"))
    return path.open("ab")


def last_line(path: Path, since: int) -> str:
    """Return the last line written to the log after byte ``since``, or an empty text."""
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(since, size - _TAIL))
        lines = log.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
