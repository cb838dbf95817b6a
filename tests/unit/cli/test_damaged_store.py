"""Damage in the middle of the database: the documented advice everywhere, and no SQL."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from maestro.domain.errors import StoreDamaged
from maestro.store.engine.sqlite import RESCUE
from tests.support.api_client import app_of, client
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro

PAGE = 4096
TABLES = ("queue", "messages", "agents", "conversations", "settings", "job_steps", "audit_log", "connector_status")
SQL = ("SELECT", "[SQL", "sqlalche.me", "Traceback", "DatabaseError")


def damage(rows: JobRows, path: Path) -> None:
    """Flip every bit of the first page of each table that is read at all; the store opens its connections anew."""
    rows.add("a text that only the person may read")
    rows.store.close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall()
    with path.open("r+b") as file:
        for root in (root for name, root in found if name in TABLES or name.startswith("ix_")):
            file.seek((root - 1) * PAGE)
            page = file.read(PAGE)
            file.seek((root - 1) * PAGE)
            file.write(bytes(byte ^ 0xFF for byte in page))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "data" / "maestro.db"


def _is_advice(text: str) -> None:
    assert "is damaged: " in text
    assert RESCUE in text
    assert [word for word in SQL if word in text] == []


def test_commands_tell_what_to_do(rows: JobRows, maestro: Maestro, database: Path) -> None:
    damage(rows, database)
    for words in (("jobs", "list"), ("agents", "list"), ("conversations", "list"), ("doctor",)):
        ran = maestro(*words)
        assert ran.code == 1
        _is_advice(" ".join(f"{ran.out} {ran.err}".split()))


async def test_the_api_and_the_pages_tell_what_to_do(rows: JobRows, database: Path) -> None:
    async with client(app_of(rows, password="")) as http:
        damage(rows, database)
        for path in ("/api/jobs", "/api/agents", "/api/conversations", "/conversations", "/agents"):
            answer = await http.get(path)
            assert answer.status_code == 503, path
            assert "is damaged: " in answer.text, path
            assert [word for word in SQL if word in answer.text] == []


def test_writing_tells_it_too_and_readiness_knows(rows: JobRows, database: Path) -> None:
    damage(rows, database)
    with pytest.raises(StoreDamaged) as caught, rows.store.begin() as tx:
        tx.system.audit.add_entry("operator", "login")
    _is_advice(str(caught.value))
    _is_advice(rows.store.find_problem() or "")


def test_a_text_that_is_none_is_damage_and_is_not_quoted(rows: JobRows, database: Path) -> None:
    job = rows.add("a text that only the person may read")
    with contextlib.closing(sqlite3.connect(database)) as raw, raw:
        raw.execute("UPDATE queue SET task = CAST(x'61ff62' AS TEXT) WHERE id = ?", (job,))
    with pytest.raises(StoreDamaged, match="is not UTF-8") as caught, rows.store.view() as tx:
        tx.jobs.read(job)
    assert "person" not in str(caught.value)
