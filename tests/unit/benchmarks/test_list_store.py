"""The store of lists is one that the product could have written, and is as large as it says."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.list_requests import measure
from benchmarks.list_rows import Extent
from benchmarks.list_store import build
from benchmarks.measure.lists import LISTS, section

EXTENT = Extent(jobs=400, messages=2_000, archived=100, conversations=60, agents=7, clients=3, facts=50, audited=30)
NOW = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


def test_the_store_is_whole_and_has_what_its_extent_says(tmp_path: Path) -> None:
    build(tmp_path / "maestro.db", EXTENT, NOW)
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)

        def count(table: str) -> int:
            return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

        tables = ("queue", "messages", "messages_archive", "conversations", "agents", "clients", "memory_facts")
        assert [count(table) for table in tables] == [400, 2_000, 100, 60, 7, 3, 50]
        assert count("audit_log") == 30
        assert count("job_steps") > 4 * 400
        assert database.execute("SELECT sum(calls) FROM usage_days").fetchone() == (count("usage_log"),)
        statuses = {status for (status,) in database.execute("SELECT DISTINCT status FROM queue")}
        assert {"completed", "failed", "dropped", "pending", "running", "waiting"} <= statuses
        newest = database.execute("SELECT max(created_at) FROM queue").fetchone()
        assert newest[0].startswith("2026-11-20T07:59:59")


def test_every_list_is_asked_for_and_every_page_is_weighed(tmp_path: Path) -> None:
    measured = measure(tmp_path, 2, EXTENT)
    assert set(measured["lists"]) == set(LISTS)
    assert {len(took["cpu"]) for took in measured["lists"].values()} == {2}
    assert "Usage" in measured["pages"]
    assert all(page["bytes"] > 50_000 for page in measured["pages"].values()), "scripts and style sheets count"
    figures = {one.what: one for one in section(measured, EXTENT).figures}
    assert figures["jobs"].target is not None
    assert figures["the heaviest page"].met is not None
