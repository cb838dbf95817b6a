"""The writing connection: replaced when it is lost, and it knows how its writes went."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from maestro.domain.errors import StoreBusy, StoreFull
from maestro.store.engine.reserve import RESERVE_BYTES
from maestro.store.store import NO_ROOM, Store, utc_now
from tests.support.fresh_store import fresh_store, path_of, sqlite_of
from tests.support.locking import locked, lose_connection

BUSY_SECONDS = 0.2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    fresh_store(tmp_path / "maestro.db").close()
    store = Store(tmp_path / "maestro.db", utc_now, BUSY_SECONDS)
    yield store
    store.close()


def write(store: Store, text: str = "wrote") -> None:
    """Commit a change."""
    with store.begin() as tx:
        tx.system.audit.add_entry("ada", text)


def in_line(store: Store, place: int, seconds: float, threads: ThreadPoolExecutor) -> "Future[None]":
    """Let a thread wait so long for the connection, in this place of the line: who came first gets it first."""
    pool = cast("Any", sqlite_of(store)._writer.engine.pool)
    pool._timeout = seconds
    waiting = threads.submit(write, store)
    while len(pool._pool.not_empty._waiters) < place and not waiting.done():
        time.sleep(0.001)
    return waiting


def fill(store: Store) -> None:
    """Let SQLite say that the disk is full as soon as the database has to grow."""
    with store.begin() as tx:
        (pages,) = tx._link.driver.execute("PRAGMA page_count").fetchone()
        tx._link.driver.execute(f"PRAGMA max_page_count={pages}")


LOCKED = "database is locked|lock timeout"
LONG = "x" * 100_000


@pytest.mark.sqlite_only(reason="SQLite has one writing connection, PostgreSQL a pool")
@pytest.mark.parametrize("statements", [(), ("BEGIN IMMEDIATE",)], ids=["idle", "in a transaction"])
def test_a_connection_that_nobody_holds_and_nobody_gets_is_replaced(store: Store, statements: tuple[str, ...]) -> None:
    write(store)
    lost = lose_connection(store, *statements)
    with capture_logs() as logs, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: write(store, str(number)), range(4)))
    assert [line["event"] for line in logs] == ["store.writer_replaced"]
    assert store.write_history.replaced == 1
    assert not store.write_history.is_failing
    with store.view() as tx:
        assert len(tx.system.audit.list_latest_entries(10)) == 5
    del lost


def test_a_connection_that_a_living_thread_holds_is_waited_for_and_not_replaced(store: Store) -> None:
    begun, over = Event(), Event()

    def hold() -> None:
        with store.begin() as tx:
            tx.system.audit.add_entry("ada", "slow")
            tx.jobs.count_pending()  # PostgreSQL begins a transaction with its first query
            begun.set()
            over.wait()

    with ThreadPoolExecutor(1) as threads:
        holding = threads.submit(hold)
        begun.wait()
        with pytest.raises(StoreBusy):
            write(store)
        over.set()
        holding.result()
    assert store.write_history.replaced == 0
    write(store)


@pytest.mark.sqlite_only(reason="SQLite has one writing connection, PostgreSQL a pool")
def test_a_connection_that_another_thread_has_just_got_is_not_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over, got, go_on = Event(), Event(), Event(), Event()

    def hold() -> None:
        with store.begin():
            begun.set()
            over.wait()

    def slowly() -> Thread:
        """Let the first thread say only later that it has the connection."""
        if not got.is_set():
            got.set()
            go_on.wait()
        return current_thread()

    with ThreadPoolExecutor(3) as threads:
        holding = threads.submit(hold)
        begun.wait()
        monkeypatch.setattr("maestro.store.engine.sqlite.current_thread", slowly)
        first, second = in_line(store, 1, 30, threads), in_line(store, 2, BUSY_SECONDS, threads)
        over.set()
        holding.result()
        got.wait()
        refusal = second.exception()
        go_on.set()
        first.result()
    assert isinstance(refusal, StoreBusy)
    assert store.write_history.replaced == 0


@pytest.mark.sqlite_only(reason="on PostgreSQL also an empty transaction has a number and is written")
def test_only_a_change_that_was_committed_is_a_successful_write(store: Store) -> None:
    with store.begin() as tx:
        tx.system.audit.list_latest_entries(1)
    assert store.write_history.succeeded_at == 0
    write(store)
    assert time.time() - store.write_history.succeeded_at < 60


def test_a_store_that_cannot_be_written_has_a_problem_until_it_can(store: Store) -> None:
    write(store)
    with locked(path_of(store)):
        assert store.find_problem() is None, "a write succeeded just now"
        with pytest.raises(StoreBusy, match=LOCKED):
            write(store)
        assert re.search(LOCKED, str(store.find_problem()))
        assert (store.write_history.is_failing, store.write_history.failures) == (True, 2)
    assert store.find_problem() is None
    assert not store.write_history.is_failing


@pytest.mark.sqlite_only(reason="reads the size of the write-ahead log")
def test_a_store_that_was_never_written_is_tried(store: Store) -> None:
    with locked(path_of(store)):
        assert "database is locked" in str(store.find_problem())
    before = (path_of(store).with_name("maestro.db-wal")).stat().st_size
    assert store.find_problem() is None
    assert path_of(store).with_name("maestro.db-wal").stat().st_size > before, "the write was a real one"


@pytest.mark.sqlite_only(reason="is about the room for a file")
def test_a_full_disk_is_told_with_what_to_do(store: Store) -> None:
    fill(store)
    with pytest.raises(StoreFull, match="Free some space"):
        write(store, LONG)
    assert "Free some space" in store.write_history.problem


@pytest.mark.sqlite_only(reason="is about the room for a file")
def test_the_reserve_is_on_the_disk_and_given_up_once(store: Store) -> None:
    reserve = path_of(store).with_name("maestro.db-reserve")
    assert not reserve.exists()
    store.create_reserve()
    found = reserve.stat()
    assert (found.st_size, found.st_mode & 0o777) == (RESERVE_BYTES, 0o600)
    assert found.st_blocks * 512 >= RESERVE_BYTES
    assert store.find_problem() is None
    assert store.release_reserve()
    assert not reserve.exists()
    assert not store.release_reserve()
    assert store.find_problem() == NO_ROOM
    sqlite_of(store).reserve.look_at = 0.0  # as if it was long ago
    assert store.find_problem() is None
    assert reserve.exists()
    assert sorted(path_of(store).parent.glob("*reserve*")) == [reserve]


def test_a_store_without_a_reserve_makes_none(store: Store) -> None:
    assert not store.release_reserve()
    write(store)
    assert store.find_problem() is None
    assert list(path_of(store).parent.glob("*reserve*")) == []
