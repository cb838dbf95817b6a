"""Eight writing processes on PostgreSQL, killed at random: each message is answered once and in order."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support import postgresql
from tests.support.forking import FORKING
from tests.support.store_writers import COST_USD, LANES, PER_LANE, PLATFORM, address_of, connect, prepare, work

MESSAGES = LANES * PER_LANE
CONNECTORS, WORKERS = 2, 6
KILLS = 30
SEED = 20261120
LOOK_SECONDS = 0.05

pytestmark = pytest.mark.postgresql_only(reason="SQLite has one writer, whose kills are in tests/chaos")


@dataclass
class Cursor:
    """A reader that continues after the last id that it has seen; ``read`` returns the ids after one."""

    read: Callable[[Transaction, int], Sequence[int]]
    settled: bool
    seen: list[int] = field(default_factory=list)

    def look(self, store: Store) -> None:
        """Read once."""
        with store.view(settled=self.settled) as tx:
            self.seen += self.read(tx, self.seen[-1] if self.seen else 0)


def after_id(table: str, column: str = "id") -> Callable[[Transaction, int], Sequence[int]]:
    """Return what reads the numbers of a table's rows after one of them."""

    def read(tx: Transaction, last: int) -> Sequence[int]:
        rows = tx._link.driver.execute(f"SELECT {column} FROM {table} WHERE {column} > %s ORDER BY 1", [last])
        return [number for (number,) in rows.fetchall()]

    return read


def chunks_of(lane: int) -> Callable[[Transaction, int], Sequence[int]]:
    """Return what reads the sent chunks of a channel as a web client does that comes back."""

    def read(tx: Transaction, last: int) -> Sequence[int]:
        found = tx.deliveries.list_sent_since(address_of(lane), last, MESSAGES)
        return [chunk.id or 0 for chunk, *_ in found]

    return read


@dataclass
class Writers:
    """The processes, of which one is killed at a time and replaced."""

    url: str
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    processes: list[tuple[BaseProcess, Callable[[], tuple[BaseProcess, Any]]]] = field(default_factory=list)
    names: int = 0

    def start(self) -> None:
        for number in range(CONNECTORS):
            self._connect(list(range(number, PER_LANE, CONNECTORS)))
        for _ in range(WORKERS):
            self._work("")

    def require_alive(self) -> None:
        """Fail if a process ended by an error."""
        assert not any(process.exitcode for process, _ in self.processes), "a process failed; its error is above"

    def kill_one(self) -> None:
        process, replace = self.processes.pop(self.chance.randrange(len(self.processes)))
        process.kill()
        process.join()
        replace()

    def stop(self) -> None:
        for process, _ in self.processes:
            process.kill()
            process.join()

    def _connect(self, numbers: list[int]) -> None:
        self._run(connect, (self.url, numbers), lambda: self._connect(numbers))

    def _work(self, dead: str) -> None:
        self.names += 1
        name = f"writer-{self.names}"
        self._run(work, (self.url, name, dead), lambda: self._work(name))

    def _run(self, target: Callable[..., None], arguments: tuple[Any, ...], again: Callable[[], Any]) -> None:
        process = FORKING.Process(target=target, args=arguments, daemon=True)
        process.start()
        self.processes.append((process, again))


@contextmanager
def following(store: Store, cursors: Sequence[Cursor]) -> Iterator[None]:
    """Let the cursors read all the time."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(LOOK_SECONDS):
            for cursor in cursors:
                cursor.look(store)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    for cursor in cursors:
        cursor.look(store)


def test_of_1000_messages_in_20_lanes_8_killed_writers_lose_double_and_reorder_none_and_no_cursor_skips_a_row(
    tmp_path: Path,
) -> None:
    url = postgresql.database_url(tmp_path / "maestro.db")
    store = Store(url)
    prepare(store)
    followed = {
        "inbox": Cursor(after_id("inbox"), settled=True),
        "queue": Cursor(after_id("queue", "turn"), settled=True),
        "llm_calls": Cursor(after_id("llm_calls"), settled=True),
        "chat": Cursor(after_id("chat"), settled=False),
    }
    clients = {lane: Cursor(chunks_of(lane), settled=False) for lane in range(LANES)}
    writers = Writers(url)
    with psycopg.connect(url, autocommit=True) as platform:
        platform.execute(PLATFORM)
        with following(store, (*followed.values(), *clients.values())):
            writers.start()
            try:
                kill_until_answered(writers, platform)
            finally:
                writers.stop()
        require_one_answer_each(platform)
        for table, cursor in followed.items():
            column = "turn" if table == "queue" else "id"
            rows = platform.execute(f"SELECT {column} FROM {table} ORDER BY 1").fetchall()
            assert cursor.seen == [number for (number,) in rows], f"rows of {table} skipped"
        for lane, client in clients.items():
            assert len(client.seen) == PER_LANE, f"a client of lane {lane} missed an answer"
    store.close()


def kill_until_answered(writers: Writers, platform: psycopg.Connection[Any]) -> None:
    """Kill a process each time that a share of the messages is answered, until all are."""
    killed = answered = 0
    while answered < MESSAGES:
        time.sleep(LOOK_SECONDS)
        writers.require_alive()
        ((answered,),) = platform.execute("SELECT count(*) FROM queue WHERE status = 'completed'").fetchall()
        if killed < KILLS and answered * (KILLS + 1) >= killed * MESSAGES:
            writers.kill_one()
            killed += 1
    assert killed == KILLS


def require_one_answer_each(platform: psycopg.Connection[Any]) -> None:
    """Compare what the platform and the store have with the messages that were sent."""

    def one(sql: str) -> Any:
        return platform.execute(sql).fetchall()[0][0]

    shown: dict[str, list[str]] = defaultdict(list)
    for channel, content in platform.execute("SELECT channel, content FROM platform ORDER BY place").fetchall():
        shown[channel].append(content)
    arrived: dict[str, list[str]] = defaultdict(list)
    for channel, content in platform.execute("SELECT channel, content FROM inbox ORDER BY id").fetchall():
        arrived[channel].append(f"answer to {content}")
    assert shown == arrived, "lost, doubled or out of order"
    expected = {f"answer to question {number}" for number in range(PER_LANE)}
    assert {channel: set(answers) for channel, answers in shown.items()} == {
        address_of(lane).channel: expected for lane in range(LANES)
    }
    assert one("SELECT count(*) FROM inbox") == MESSAGES
    assert one("SELECT count(*) FROM queue WHERE status = 'completed'") == MESSAGES
    assert one("SELECT count(*) FROM deliveries WHERE state = 'sent'") == MESSAGES
    assert one("SELECT count(*) FROM messages WHERE role = 'user'") == MESSAGES
    assert one("SELECT count(*) FROM messages WHERE role = 'assistant'") == MESSAGES
    assert one("SELECT count(*) FROM conversations") == LANES
    assert one("SELECT sum(message_count) FROM conversations") == 2 * MESSAGES
    answered = one("SELECT count(*) FROM llm_calls WHERE state = 'answered'")
    assert answered == one("SELECT calls FROM accounts") == MESSAGES
    charged = one("SELECT sum(cost_usd) FROM usage_log")
    assert one("SELECT sum(spent_usd) FROM spending WHERE scope = 'day'") == pytest.approx(charged)
    assert one("SELECT sum(cost_usd + interrupted_cost_usd) FROM usage_days") == pytest.approx(charged)
    assert charged >= MESSAGES * COST_USD - COST_USD / 2
    assert one("SELECT sum(reserved_usd) FROM spending") == pytest.approx(0)
    assert one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
