"""Counts exactly what one plain message costs: statements, transactions, threads, code, workflow history.

``python -m tests.support.message_cost [--statements FILE] [--files FILE]`` prints the counts of the second message of a
conversation, and writes the lists behind them. Load cannot disturb a count: while a message is counted the clock of the
event loop stands still, so that no periodic look of an idle part falls into it.
"""

import argparse
import asyncio
import contextlib
import re
import sqlite3
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

from structlog.testing import capture_logs
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from benchmarks.billing import billable_actions
from tests.support.instance import Instance, running_instance
from tests.support.web_client import WebClient

ROOT = Path(__file__).parents[2]
PACKAGES = ("maestro", "connectors", "activities", "workflows", "temporal", "api")
CHANNEL = "counted"
PLUMBING = ("engine/statements.py", "engine/repository.py", "engine/sqlite.py", "store/store.py")
"""Modules of the store that pass a statement on, and say nothing about what it is for."""
READS_QUEUE = re.compile(r"(?:SELECT|WITH)\b.*\b(?:FROM|JOIN) queue\b")
QUIET_LOOKS = 5
LOOK_SECONDS = 0.02
SHOWN = 400
"""Characters of a statement that are shown."""
HEAD = "The second plain message of a conversation: python -m tests.support.message_cost --statements FILE --files FILE"


@dataclass(frozen=True)
class Statement:
    """One statement as the driver got it; ``transaction`` is 0 outside of one, ``caller`` who asked for it."""

    transaction: int
    sql: str
    caller: str

    @property
    def reads_queue(self) -> bool:
        """Whether it reads the table of jobs, and changes nothing."""
        return READS_QUEUE.match(self.sql) is not None


@dataclass
class StoreTransaction:
    """A transaction of the store: whether it began as a writing one, and whether it changed something."""

    number: int
    writes: bool
    committed: bool = False


@dataclass
class Counts:
    """What was seen while one message was answered."""

    statements: list[Statement] = field(default_factory=list)
    transactions: list[StoreTransaction] = field(default_factory=list)
    hops: list[str] = field(default_factory=list)
    codes: set[CodeType] = field(default_factory=set)
    history: list[str] = field(default_factory=list)
    actions: int = 0

    def clear(self) -> None:
        """Begin to count."""
        for seen in (self.statements, self.transactions, self.hops, self.codes):
            seen.clear()

    @property
    def numbers(self) -> dict[str, int]:
        """The counts by name."""
        files = self.files
        return {
            "commits": sum(one.committed for one in self.transactions),
            "transactions": len(self.transactions),
            "writing transactions": sum(one.writes for one in self.transactions),
            "statements": len(self.statements),
            "reads of queue": sum(one.reads_queue for one in self.statements),
            "thread hops": len(self.hops),
            "workflow tasks": self.history.count("WORKFLOW_TASK_COMPLETED"),
            "history events": len(self.history),
            "billable actions": self.actions,
            "files": len(files),
            "files of bootstrap": len([name for name in files if name.startswith("maestro/bootstrap/")]),
            "functions": sum(map(len, files.values())),
        }

    @property
    def files(self) -> dict[str, list[str]]:
        """The product's files that were executed, each with its functions in the order of the source."""
        found: dict[str, list[str]] = {}
        for code in sorted(self.codes, key=lambda code: (code.co_filename, code.co_firstlineno)):
            file, _, function = _function(code).partition(":")
            if function and (function.endswith("<lambda>") or not function.endswith(">")):  # no comprehensions
                found.setdefault(file, []).append(function)
        return found


class MessageCounter:
    """Counts what happens inside ``counting`` at connections and in thread pools of the time of ``watching``."""

    def __init__(self) -> None:
        self.counts: Counts | None = None
        self._pending: set[Future[Any]] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Put the counters in; the store must be opened inside."""
        connect, submit = sqlite3.connect, ThreadPoolExecutor.submit

        def connected(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **{"factory": CountedConnection, **options})
            if isinstance(connection, CountedConnection):
                connection.counter = self
            return connection

        def submitted(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
            counts = self.counts
            if counts is None:
                return submit(pool, work, *args, **named)
            counts.hops.append(_work_name(work, args))
            future = submit(pool, _profiled(counts, work), *args, **named)
            self._pending.add(future)
            future.add_done_callback(self._pending.discard)
            return future

        with (
            mock.patch.object(sqlite3, "connect", connected),
            mock.patch.object(sqlite3.dbapi2, "connect", connected),
            mock.patch.object(ThreadPoolExecutor, "submit", submitted),
        ):
            yield

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counts]:
        """Count, with the clock of the event loop standing still; use it in the loop's thread."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        counts = Counts()
        with mock.patch.object(loop, "time", return_value=now):
            self.counts = counts
            sys.setprofile(_profile_of(counts))
            try:
                yield counts
            finally:
                sys.setprofile(None)
                self.counts = None

    async def quiet(self) -> None:
        """Return once no thread works and nothing more is asked of the store."""
        quiet, seen = 0, -1
        while quiet < QUIET_LOOKS:
            await _pause(LOOK_SECONDS)
            now = len(self.counts.statements) + len(self.counts.hops) if self.counts is not None else 0
            quiet = quiet + 1 if now == seen and not self._pending else 0
            seen = now

    def note(self, connection: "CountedConnection", sql: str) -> None:
        """Count a statement."""
        counts = self.counts
        caller = _caller() if counts is not None else ""
        if counts is None or not caller:
            return
        with self._lock:
            if sql.startswith("BEGIN"):
                number = len(counts.transactions) + 1
                connection.transaction = StoreTransaction(number, writes="IMMEDIATE" in sql)
                connection.changes = connection.total_changes
                counts.transactions.append(connection.transaction)
            current = connection.transaction
            if sql == "COMMIT" and current is not None:
                current.committed = connection.total_changes > connection.changes
            counts.statements.append(Statement(current.number if current else 0, " ".join(sql.split()), caller))
            if sql in ("COMMIT", "ROLLBACK"):
                connection.transaction = None


class CountedConnection(sqlite3.Connection):
    """A connection that tells its counter of every statement."""

    counter: MessageCounter | None = None
    transaction: StoreTransaction | None = None
    changes = 0

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor that tells, too."""
        return super().cursor(factory or CountedCursor)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run a statement."""
        cursor: sqlite3.Cursor = self.cursor().execute(sql, parameters)
        return cursor

    def commit(self) -> None:
        """Commit, where there is something to commit."""
        if self.in_transaction:
            self.note("COMMIT")
        super().commit()

    def rollback(self) -> None:
        """Roll back, where there is something to roll back."""
        if self.in_transaction:
            self.note("ROLLBACK")
        super().rollback()

    def note(self, sql: str) -> None:
        """Tell of a statement."""
        if self.counter is not None:
            self.counter.note(self, sql)


class CountedCursor(sqlite3.Cursor):
    """A cursor that tells the counter of its connection of every statement; many rows at once are one."""

    def execute(self, sql: str, parameters: Any = (), /) -> "CountedCursor":
        """Run a statement."""
        self._note(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> "CountedCursor":
        """Run a statement for many rows."""
        self._note(sql)
        return super().executemany(sql, parameters)

    def _note(self, sql: str) -> None:
        if isinstance(self.connection, CountedConnection):
            self.connection.note(sql)


async def counted(counter: MessageCounter, instance: Instance, client: WebClient, temporal: Client) -> Counts:
    """Answer one plain message and count it, until its workflow has ended and every thread is done."""
    with counter.counting() as counts:
        await counter.quiet()  # what had begun before
        counts.clear()
        await client.ask("hello")
        handle = temporal.get_workflow_handle(instance.jobs(CHANNEL)[-1]["id"])
        await handle.result()
        await counter.quiet()
    history = (await handle.fetch_history()).events
    return replace(
        counts,
        history=[EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in history],
        actions=billable_actions(history).total(),
    )


@contextlib.asynccontextmanager
async def counted_instance(folder: Path) -> AsyncIterator[Callable[[], Awaitable[Counts]]]:
    """Run a Maestro and give what counts its next message; the first, which loads and compiles, has been answered."""
    counter = MessageCounter()
    with counter.watching(), capture_logs():
        async with running_instance(folder) as instance, instance.client(CHANNEL) as client:
            await client.ask("hello")
            await instance.ended(CHANNEL, "completed")
            yield partial(counted, counter, instance, client, await instance.temporal())


def _profile_of(counts: Counts) -> Callable[[FrameType, str, Any], None]:
    note = counts.codes.add

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            note(frame.f_code)

    return profile


def _profiled(counts: Counts, work: Callable[..., Any]) -> Callable[..., Any]:
    def profiled(*args: Any, **named: Any) -> Any:
        sys.setprofile(_profile_of(counts))
        try:
            return work(*args, **named)
        finally:
            sys.setprofile(None)

    return profiled


def _caller() -> str:
    """Name the function that asks the store, and the one outside of the store that needs it; empty if not ours."""
    frame: FrameType | None = sys._getframe(1)
    asks = ""
    while frame is not None:
        name = _function(frame.f_code)
        if name and not any(part in name for part in PLUMBING):
            if not name.startswith("maestro/store/"):
                return f"{asks} for {name}" if asks else name
            asks = asks or name
        frame = frame.f_back
    return asks


def _function(code: CodeType) -> str:
    """Return the file and the name of a function of the product, empty for other code."""
    path = code.co_filename.removeprefix(f"{ROOT}/")
    name = code.co_qualname.replace(".<locals>", "")
    return f"{path}:{name}" if path.partition("/")[0] in PACKAGES else ""


def _work_name(work: Any, args: Sequence[Any]) -> str:
    """Return the name of what a thread is given to do."""
    if isinstance(work, partial):
        return _work_name(work.func, work.args)
    if getattr(work, "__name__", "") == "run" and args and callable(args[0]):  # of a Context: asyncio.to_thread
        return _work_name(args[0], args[1:])
    return f"{getattr(work, '__module__', '')}.{getattr(work, '__qualname__', repr(work))}"


async def _pause(seconds: float) -> None:
    """Wait by the clock on the wall: that of the event loop stands still."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    timer = threading.Timer(seconds, loop.call_soon_threadsafe, (over.set,))
    timer.start()
    await over.wait()


def statements_text(counts: Counts) -> str:
    """Return the statements in order, each with its transaction and caller, then what threads did, and the history."""
    statements = [
        f"{number:3} tx{one.transaction:02} {one.sql[:SHOWN]}\n{'':9} {one.caller}"
        for number, one in enumerate(counts.statements, 1)
    ]
    return "\n".join([*statements, "", "Work given to threads:", *counts.hops, "", "History:", *counts.history, ""])


def files_text(counts: Counts) -> str:
    """Return the files with their functions."""
    return "".join(f"{file}\n    {', '.join(functions)}\n" for file, functions in counts.files.items())


async def _count() -> Counts:
    with tempfile.TemporaryDirectory() as folder:
        async with counted_instance(Path(folder)) as answer:
            return await answer()


def main() -> None:
    """Count one message and write the lists."""
    parser = argparse.ArgumentParser(description="Count what one plain message costs.")
    parser.add_argument("--statements", type=Path, help="where the statements go, in order")
    parser.add_argument("--files", type=Path, help="where the executed files go, with their functions")
    given = parser.parse_args()
    counts = asyncio.run(_count())
    numbers = "".join(f"{number:5} {name}\n" for name, number in counts.numbers.items())
    print(numbers, end="")
    for target, text in ((given.statements, statements_text(counts)), (given.files, files_text(counts))):
        if target is not None:
            target.write_text(f"{HEAD}\n\n{numbers}\n{text}")


if __name__ == "__main__":
    main()
