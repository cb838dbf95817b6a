"""A look at the store from outside: what it finds, and that it leaves no trace."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from maestro.domain.errors import OlderDatabase, StoreUnreadable
from maestro.domain.jobs.job import JobStatus
from maestro.store.inspection import inspect_database
from tests.support.fresh_store import fresh_store
from tests.support.job_rows import JobRows
from tests.support.postgresql import location_of

SECONDS = 30.0


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder with what is in them."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_counts_what_is_open_and_what_failed(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path)
    rows.add()
    rows.failed()
    rows.end(rows.add(), JobStatus.COMPLETED)
    with rows.store.begin() as tx:
        tx.users.record_connector_state("web", "default", "running", "port 5070")
    database = location_of(tmp_path / "maestro.db")
    beside = inspect_database(database, SECONDS)  # while it is in use, with a write-ahead log
    rows.store.close()
    for found in (beside, inspect_database(database, SECONDS)):
        assert (found.open_jobs, found.failed_jobs, found.damage, found.thorough) == (1, 1, "", True)
        assert [(connector.platform, connector.state) for connector in found.connectors] == [("web", "running")]


@pytest.mark.sqlite_only(reason="looks into a file")
def test_after_a_clean_end_it_leaves_no_trace(tmp_path: Path) -> None:
    fresh_store(tmp_path / "maestro.db").close()
    before = files(tmp_path)
    inspect_database(tmp_path / "maestro.db", SECONDS)
    assert files(tmp_path) == before


@pytest.mark.sqlite_only(reason="looks into a file")
def test_a_strange_file_is_refused_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "maestro.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE recipes (name)")
    before = files(tmp_path)
    with pytest.raises(OlderDatabase):
        inspect_database(path, SECONDS)
    assert files(tmp_path) == before


@pytest.mark.sqlite_only(reason="looks into a file")
def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable):
        inspect_database(tmp_path, SECONDS)


@pytest.mark.sqlite_only(reason="looks into a file")
def test_damaged_pages_are_found(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path)
    for _ in range(200):
        rows.add()
    rows.store.close()
    path = tmp_path / "maestro.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_queue_status_turn'").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\x00" * 4096)
    assert inspect_database(path, SECONDS).damage


@pytest.mark.sqlite_only(reason="looks into a file")
def test_a_database_too_damaged_to_look_at_is_not_to_be_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "maestro.db"
    fresh_store(path).close()
    with path.open("r+b") as file:
        file.seek(100)  # the tables' own table begins after the header
        file.write(b"\xff" * 1000)
    with pytest.raises(StoreUnreadable, match=r"is damaged.*keep a copy"):
        inspect_database(path, SECONDS)


@pytest.mark.sqlite_only(reason="looks into a file")
def test_without_the_time_for_every_page_it_says_so(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path)
    for _ in range(300):
        rows.add()
    rows.store.close()
    found = inspect_database(tmp_path / "maestro.db", seconds=-1.0)
    assert (found.thorough, found.damage, found.open_jobs) == (False, "", 300)
