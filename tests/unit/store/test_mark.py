"""The mark of a store: another one after every change, whoever made it, and the same while nobody makes one."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from maestro.domain.errors import StoreBusy
from maestro.store.store import Store
from tests.support import postgresql
from tests.support.fresh_store import fresh_store

OTHER_PROCESS = """
import sys
from pathlib import Path
from maestro.store.store import Store
from tests.support import postgresql
if postgresql.wanted():
    postgresql.use_postgresql()
store = Store(Path(sys.argv[1]))
for line in sys.stdin:
    with store.begin() as tx:
        tx.system.audit.add_entry("somebody", line.strip())
    print("done", flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db")
    yield store
    store.close()


def note(store: Store) -> None:
    """Change something."""
    with store.begin() as tx:
        tx.system.audit.add_entry("somebody", "something")


def test_it_moves_with_each_change_and_not_without_one(store: Store) -> None:
    marks = [store.mark()]
    for _ in range(3):
        note(store)
        marks.append(store.mark())
        assert store.mark() == marks[-1] or postgresql.wanted(), "on PostgreSQL other databases move it as well"
    assert len(set(marks)) == 4


def broken_off(store: Store) -> None:
    """Write something that is taken back."""
    with store.begin() as tx:
        tx.system.audit.add_entry("somebody", "something")
        raise RuntimeError


@pytest.mark.sqlite_only(reason="on PostgreSQL also an empty transaction has a number, and moves the mark")
def test_reading_and_writing_nothing_leave_it_as_it_is(store: Store) -> None:
    before = store.mark()
    with store.view() as tx:
        assert not tx.system.audit.list_latest_entries(1)
    with store.begin() as tx:
        assert not tx.system.audit.list_latest_entries(1)
    with pytest.raises(RuntimeError):
        broken_off(store)
    assert store.mark() == before


def test_it_hears_of_other_processes(store: Store, tmp_path: Path) -> None:
    before = store.mark()
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "maestro.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for action in ("one", "two"):
            other.stdin.write(f"{action}\n")
            other.stdin.flush()
            assert other.stdout.readline() == "done\n"
            assert store.mark() != before
            before = store.mark()
        other.stdin.close()
    with store.view() as tx:
        assert [entry.action for entry in tx.system.audit.list_latest_entries(5)] == ["two", "one"]


@pytest.mark.sqlite_only(reason="commits of other databases move the mark of PostgreSQL meanwhile")
def test_it_is_told_while_somebody_writes(store: Store) -> None:
    before = store.mark()
    with store.begin() as tx, ThreadPoolExecutor(4) as pool:
        tx.system.audit.add_entry("somebody", "something")
        assert set(pool.map(lambda _: store.mark(), range(20))) == {before}
    assert store.mark() != before


@pytest.mark.sqlite_only(reason="reads a pragma from outside")
def test_it_changes_nothing_itself(store: Store, tmp_path: Path) -> None:
    store.mark()
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as other:
        seen = other.execute("PRAGMA data_version").fetchone()
        store.mark()
        assert other.execute("PRAGMA data_version").fetchone() == seen


@pytest.mark.sqlite_only(reason="the folder of the file does not exist")
def test_a_store_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "nowhere" / "maestro.db")
    with pytest.raises(StoreBusy, match="did not answer"):
        store.mark()
