"""Wrappers that kill the process they run in at a named point; the product knows nothing of them.

A point is ``before`` or ``after`` something that a message causes: a committed transaction (``before route done`` is
the moment in which everything is written but nothing committed), the model's wire, the platform, the start of a
workflow, the acknowledgement; or it is ``inside`` a transaction. ``crash_points`` says how transactions are named, and
what a number behind a name means.
"""

import asyncio
import fcntl
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

from temporalio.client import Client

from connectors import hub
from connectors.base import Connector
from connectors.failures import SendFailure
from connectors.web import WebConnector
from maestro.connector_runtime.host import StoreContext
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, ToolSpec
from maestro.domain.messages import AcceptedMessage, IncomingMessage, OutgoingMessage, Receipt
from maestro.llm.protocols import LLMClient
from maestro.store.engine.database import BUSY_SECONDS, Location
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.tools.base import ToolCaller
from temporal.server_process import read_record
from tests.support.crash_points import Change, Commit, Recording, RowWatch, inside
from tests.support.locking import lose_connection

ARMED = "armed.json"
CLAIM = "armed.lock"
PASSED = "passed.log"
BUSY = "busy-seconds"
LOSE = "lose-writer"
RELEASE = "release"

MAESTRO, TEMPORAL = "maestro", "temporal"
"""Who can die at a point; Temporal first where both do."""

LOOP_TURNS = 20
"""How often the loop goes round until a frame given to a socket has left the process."""


def set_lock_wait(folder: Path, seconds: float) -> None:
    """Let the store of this data folder wait only so long for the lock of its database, from the next start on."""
    (folder / BUSY).write_text(str(seconds))


def busy_seconds(folder: Path) -> float:
    """Return how long the store of this data folder waits for the lock of its database."""
    return float((folder / BUSY).read_text()) if (folder / BUSY).exists() else BUSY_SECONDS


def set_release(folder: Path, number: str) -> None:
    """Let the processes of this data folder be of a release of this number, from their next start on."""
    (folder / RELEASE).write_text(number)


def release_of(folder: Path) -> str:
    """Return the number of the release that processes of this data folder are now, empty for their own."""
    return (folder / RELEASE).read_text() if (folder / RELEASE).exists() else ""


def lose_writer(folder: Path) -> None:
    """Let the process of this data folder lose the one connection that writes, inside a transaction."""
    (folder / LOSE).touch()


class Fuse:
    """Kills this process, its Temporal server or both at the point that the test has armed, as often as it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._armed = folder / ARMED
        self._passed = folder / PASSED
        self._lock = threading.Lock()

    def note(self, moment: object) -> None:
        """Note what was done, for a recording."""
        # On a full disk, which some tests are about, nothing can be noted.
        with self._lock, suppress(OSError), self._passed.open("a") as log:
            log.write(f"{json.dumps(moment)}\n")

    def reach(self, *names: str) -> None:
        """Die if the armed point has one of these names."""
        with self._lock:
            for victim in self._victims(names):
                os.kill(self._pid(victim), signal.SIGKILL)

    def effect(self, point: str) -> None:
        """Note the point before or after an effect, and die if it is the armed one."""
        self.note(point)
        self.reach(point)

    def _victims(self, names: Sequence[str]) -> list[str]:
        armed = Armed.read(self._armed)
        if armed is None or armed.point not in names:
            return []
        with claimed(self.folder):  # several processes of a layout may be at the point at once, and one of them dies
            armed = Armed.read(self._armed)
            if armed is None or armed.point not in names:
                return []
            if armed.first > 1:
                replace(armed, first=armed.first - 1).write(self._armed)
                return []
            if armed.times == 1:
                self._armed.unlink()
            else:
                replace(armed, times=armed.times - 1).write(self._armed)
            return list(armed.victims)

    def _pid(self, victim: str) -> int:
        if victim == MAESTRO:
            return os.getpid()
        record = read_record(self._armed.parent / "temporal.json")
        assert record is not None
        return record.pid


@dataclass(frozen=True)
class Armed:
    """The point to die at: from the ``first`` time that it is reached, so many ``times``."""

    point: str
    first: int
    times: int
    victims: Sequence[str]

    @classmethod
    def read(cls, path: Path) -> "Armed | None":
        """Return what is armed, None if nothing is."""
        with suppress(FileNotFoundError):
            return cls(**json.loads(path.read_text()))
        return None

    def write(self, path: Path) -> None:
        """Replace the file at once, for the process may read it at any moment."""
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)))
        fresh.replace(path)


def arm(folder: Path, point: str, times: int = 1, victims: Sequence[str] = (MAESTRO,)) -> None:
    """Let the process of this data folder, or its Temporal server, die at a point; also while it runs."""
    name, number = re.fullmatch(r"(.+?)(?: \((\d+)\))?", point).groups()  # type: ignore[union-attr] # it always matches
    (folder / CLAIM).touch()
    Armed(name, int(number or 1), times, victims).write(folder / ARMED)


def disarm(folder: Path) -> bool:
    """Let the process of this data folder live; return whether something was armed still."""
    (folder / CLAIM).touch()
    with claimed(folder):
        was_armed = is_armed(folder)
        (folder / ARMED).unlink(missing_ok=True)
    return was_armed


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Be the only process that reads and changes what is armed in a folder."""
    with (folder / CLAIM).open("rb") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        yield


def is_armed(folder: Path) -> bool:
    """Tell whether the armed point has not been reached as often as it should."""
    return (folder / ARMED).exists()


def recording(folder: Path) -> Recording:
    """Return what the process has done since its recording was forgotten."""
    log = folder / PASSED
    return Recording.read(log.read_text().splitlines() if log.exists() else [])


def forget_recording(folder: Path) -> None:
    """Begin a new recording."""
    (folder / PASSED).unlink(missing_ok=True)


class CrashingStore(Store):
    """Reaches a point before and after every commit that changes something, and after each change inside."""

    def __init__(self, location: Location, clock: Callable[[], datetime], fuse: Fuse) -> None:
        super().__init__(location, clock, busy_seconds(fuse.folder))
        self._fuse = fuse
        self._watch = RowWatch(self._changed)
        self._here = threading.local()
        """``changes``: those of the transaction of this thread, for PostgreSQL runs several side by side."""
        self._lose = fuse.folder / LOSE
        self._lost: list[object] = []

    @contextmanager
    def begin(self, **scope: Any) -> Iterator[Transaction]:
        """Do what the store does; what is a part of another transaction is committed with that one."""
        if self.is_writing:
            with super().begin(**scope) as tx:
                yield tx
            return
        self._lose_connection()
        commit = Commit(())
        with super().begin(**scope) as tx:
            self._watch.follow(tx._link.driver)
            self._here.changes = []
            yield tx
            tx._link.flush_writes()
            self._watch.catch_up(tx._link.driver)
            commit = Commit(tuple(self._here.changes))
            if commit.changes:
                self._fuse.reach(*commit.points("before"))
        if commit.changes:
            self._fuse.note([astuple(change) for change in commit.changes])
            self._fuse.reach(*commit.points("after"))

    def _lose_connection(self) -> None:
        """Lose the connection if a test says so; the garbage collector must not give it back either."""
        if self._lose.exists():
            self._lose.unlink(missing_ok=True)
            self._lost.append(lose_connection(self, "BEGIN IMMEDIATE"))

    def _changed(self, change: Change) -> None:
        changes: list[Change] = self._here.changes
        changes.append(change)
        self._fuse.reach(inside(changes))


class CrashingClient:
    """Reaches a point before a request leaves and when its answer has come but nobody has kept it."""

    def __init__(self, inner: LLMClient, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on."""
        self._fuse.effect("before wire")
        response = await self._inner.complete(request)
        self._fuse.effect("after wire")
        return response


class CrashingTool:
    """A tool that writes a line into a file, reaching a point before and after; only ``note_again`` may be repeated."""

    read_only = False

    def __init__(self, name: str, fuse: Fuse, folder: Path) -> None:
        self.idempotent = name == "note_again"
        self.spec = ToolSpec(
            name=name,
            description="Write a note.",
            parameters='{"properties":{"text":{"type":"string"}},"required":["text"],"type":"object"}',
        )
        self._fuse = fuse
        self._notes = notes_of(folder)

    async def run(self, arguments: Mapping[str, Any], _: ToolCaller) -> str:
        """Write the line."""
        self._fuse.effect("before effect")
        with self._notes.open("a") as notes:
            notes.write(f"{arguments['text']}\n")
        self._fuse.effect("after effect")
        return f"noted {arguments['text']}"


def notes_of(folder: Path) -> Path:
    """Return the file that the noting tools write into."""
    return folder / "notes.txt"


class CrashingWeb(WebConnector):
    """Reaches a point before a chunk is handed over and when the sockets have it but its receipt is not kept."""

    fuse: Fuse

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send, and see to it that the chunk has left the process."""
        self.fuse.effect("before send")
        receipt = await super().send(message)
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
        self.fuse.effect("after send")
        return receipt


class CrashingContext(StoreContext):
    """Reaches a point when a message is kept and its sender does not know."""

    fuse: Fuse

    async def accept(self, message: IncomingMessage) -> AcceptedMessage:
        """Accept the message."""
        accepted = await super().accept(message)
        self.fuse.effect("before ack")
        return accepted


@contextmanager
def crashing_starts(fuse: Fuse) -> Iterator[None]:
    """Reach a point before and after Temporal is told of a job, by whatever part of the product."""
    start = Client.start_workflow

    async def crashing(client: Client, *arguments: Any, **named: Any) -> Any:
        fuse.effect("before start")
        handle = await start(client, *arguments, **named)
        fuse.effect("after start")
        return handle

    with mock.patch.object(Client, "start_workflow", crashing):
        yield


@contextmanager
def crashing_sends(fuse: Fuse) -> Iterator[None]:
    """Reach a point before and after a chunk is sent to a platform; the web connector has points of its own."""
    attempt = hub.attempt

    async def crashing(connector: Connector, message: OutgoingMessage) -> Receipt | SendFailure:
        if isinstance(connector, WebConnector):
            return await attempt(connector, message)
        fuse.effect(f"before {connector.platform} send")
        outcome = await attempt(connector, message)
        fuse.effect(f"after {connector.platform} send")
        return outcome

    with mock.patch.object(hub, "attempt", crashing):
        yield
