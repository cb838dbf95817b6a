"""Wrappers that kill the process they run in at a named point; the product knows nothing of them.

A point is ``before`` or ``after`` something that happens once in the life of a message: a committed transaction
(``before route done`` is the moment in which everything is written but nothing committed), the model's wire, the
platform, the start of a workflow, the acknowledgement. Transactions name themselves by what is done in them, so a new
step has its points without a change here.
"""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from temporalio.client import Client

from connectors.web import WebConnector
from maestro.bootstrap.context import StoreContext
from maestro.domain.llm.prompts import CallKey, CallPurpose, LLMRequest, LLMResponse, ToolSpec
from maestro.domain.messages import Accepted, IncomingMessage, OutgoingMessage, Receipt
from maestro.llm.protocols import LLMClient
from maestro.store.claims import Claimed
from maestro.store.engine import BUSY_SECONDS
from maestro.store.store import Store
from maestro.store.transaction import OnDemand, Transaction
from maestro.tools.base import Caller
from temporal.dispatcher import Dispatcher
from temporal.server_process import read_record

ARMED = "armed.json"
PASSED = "passed.log"
BUSY = "busy-seconds"

MAESTRO, TEMPORAL = "maestro", "temporal"
"""Who can die at a point; Temporal first where both do."""

LOOP_TURNS = 20
"""How often the loop goes round until a frame given to a socket has left the process."""

Call = tuple[str, tuple[Any, ...]]

_NAMES: Mapping[str, Callable[..., str]] = {
    "steps.done": lambda ref, *_: f"{ref.step} done",
    "steps.failed": lambda ref, *_: f"{ref.step} failed",
    "steps.suspended": lambda ref, *_: f"{ref.step} waits",
    "steps.start": lambda ref, *_: f"{ref.step} begins",
    "inbox.add": lambda *_: "accept",
    "jobs.claim": lambda *_: "claim",
    "calls.sent": lambda key, *_: f"{_call(key)} request",
    "calls.keep_answer": lambda key, *_: f"{_call(key)} answer",
    "calls.failed": lambda key, *_: f"{_call(key)} failure",
    "calls.interrupted": lambda key, *_: f"{_call(key)} interruption",
    "budgets.reserve": lambda *_: "reservation",
    "budgets.release": lambda *_: "release",
    "media.heard": lambda *_: "transcript",
    "tool_runs.begin": lambda run, *_: f"tool-{run.number}-{run.place} call",
    "webhooks.take": lambda *_: "hook",
    "deliveries.sent": lambda *_: "receipt",
    "deliveries.take_lane": lambda *_: "chunks",
    "drafts.placed": lambda *_: "placeholder receipt",
    "drafts.sending": lambda *_: "placeholder",
    "drafts.write": lambda *_: "draft",
    "memory.learn": lambda *_, **__: "memory.learn",
    "batches.settle": lambda *_, **__: "batch item",
}
"""What a transaction is called, by the first of these methods that was called in it."""


def be_impatient(folder: Path, seconds: float) -> None:
    """Let the store of this data folder wait only so long for the lock of its database, from the next start on."""
    (folder / BUSY).write_text(str(seconds))


def busy_seconds(folder: Path) -> float:
    """Return how long the store of this data folder waits for the lock of its database."""
    return float((folder / BUSY).read_text()) if (folder / BUSY).exists() else BUSY_SECONDS


class Fuse:
    """Kills this process, its Temporal server or both at the point that the test has armed, as often as it said."""

    def __init__(self, folder: Path) -> None:
        self._armed = folder / ARMED
        self._passed = folder / PASSED
        self._lock = threading.Lock()

    def reach(self, point: str) -> None:
        """Note that a point is reached, and die if it is the armed one."""
        with self._lock:
            # On a full disk, which some tests are about, nothing can be noted.
            with suppress(OSError), self._passed.open("a") as log:
                log.write(f"{point}\n")
            for victim in self._victims(point):
                os.kill(self._pid(victim), signal.SIGKILL)

    def _victims(self, point: str) -> list[str]:
        try:
            armed = json.loads(self._armed.read_text())
        except FileNotFoundError:
            return []
        if armed["point"] != point:
            return []
        if armed["times"] == 1:
            self._armed.unlink()
        else:
            arm(self._armed.parent, point, armed["times"] - 1, armed["victims"])
        return list(armed["victims"])

    def _pid(self, victim: str) -> int:
        if victim == MAESTRO:
            return os.getpid()
        record = read_record(self._armed.parent / "temporal.json")
        assert record is not None
        return record.pid


def arm(folder: Path, point: str, times: int = 1, victims: Sequence[str] = (MAESTRO,)) -> None:
    """Let the process of this data folder, or its Temporal server, die at a point; also while it runs."""
    fresh = folder / f"{ARMED}.new"
    fresh.write_text(json.dumps({"point": point, "times": times, "victims": victims}))
    fresh.replace(folder / ARMED)


def is_armed(folder: Path) -> bool:
    """Tell whether the armed point has not been reached as often as it should."""
    return (folder / ARMED).exists()


def passed(folder: Path) -> list[str]:
    """Return every point that the process has reached, in order."""
    log = folder / PASSED
    return log.read_text().splitlines() if log.exists() else []


def forget_passed(folder: Path) -> None:
    """Begin a new list of reached points."""
    (folder / PASSED).unlink(missing_ok=True)


class CrashingStore(Store):
    """Reaches a point before and after every commit that changes something."""

    def __init__(self, path: Path, clock: Callable[[], datetime], fuse: Fuse) -> None:
        super().__init__(path, clock, busy_seconds(path.parent))
        self._fuse = fuse

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """Do what the store does; the transaction is named by what is called in it."""
        name = ""
        with super().begin() as tx:
            calls = _noted(tx)
            before = _changes(tx)
            yield tx
            tx._link.flush()
            if _changes(tx) > before:
                name = transaction_name(calls)
                self._fuse.reach(f"before {name}")
        if name:
            self._fuse.reach(f"after {name}")


def transaction_name(calls: list[Call]) -> str:
    """Name a transaction by the calls made in it; one that no rule knows is named by all of them."""
    arguments = dict(reversed(calls))
    for method, describe in _NAMES.items():
        if method in arguments:
            return describe(*arguments[method])
    return " + ".join(dict(calls))


def _call(key: CallKey) -> str:
    return f"model-{key.number}" if key.purpose is CallPurpose.ANSWER else key.purpose


def _noted(tx: Transaction) -> list[Call]:
    calls: list[Call] = []
    for name, member in vars(Transaction).items():
        if isinstance(member, OnDemand):
            tx.__dict__[name] = _Noting(getattr(tx, name), name, calls)
    return calls


def _changes(tx: Transaction) -> int:
    return tx._link.driver.total_changes


class _Noting:
    """A repository that notes which of its methods are called."""

    def __init__(self, repository: object, name: str, calls: list[Call]) -> None:
        self._repository = repository
        self._name = name
        self._calls = calls

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._repository, method)
        if not callable(found):
            return found

        def noting(*arguments: Any, **named: Any) -> Any:
            self._calls.append((f"{self._name}.{method}", arguments))
            return found(*arguments, **named)

        return noting


class CrashingClient:
    """Reaches a point before a request leaves and when its answer has come but nobody has kept it."""

    def __init__(self, inner: LLMClient, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on."""
        self._fuse.reach("before wire")
        response = await self._inner.complete(request)
        self._fuse.reach("after wire")
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

    async def run(self, arguments: Mapping[str, Any], _: Caller) -> str:
        """Write the line."""
        self._fuse.reach("before effect")
        with self._notes.open("a") as notes:
            notes.write(f"{arguments['text']}\n")
        self._fuse.reach("after effect")
        return f"noted {arguments['text']}"


def notes_of(folder: Path) -> Path:
    """Return the file that the noting tools write into."""
    return folder / "notes.txt"


class CrashingWeb(WebConnector):
    """Reaches a point before a chunk is handed over and when the sockets have it but its receipt is not kept."""

    fuse: Fuse

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send, and see to it that the chunk has left the process."""
        self.fuse.reach("before send")
        receipt = await super().send(message)
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
        self.fuse.reach("after send")
        return receipt


class CrashingContext(StoreContext):
    """Reaches a point when a message is kept and its sender does not know."""

    fuse: Fuse

    async def accept(self, message: IncomingMessage) -> Accepted:
        """Accept the message."""
        accepted = await super().accept(message)
        self.fuse.reach("before ack")
        return accepted


class CrashingDispatcher(Dispatcher):
    """Reaches a point before and after Temporal is told of a job."""

    fuse: Fuse

    async def _begin(self, client: Client, claimed: Claimed) -> None:
        self.fuse.reach("before start")
        await super()._begin(client, claimed)
        self.fuse.reach("after start")
