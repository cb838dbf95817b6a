"""A database that an earlier release wrote: brought up to date by the next start, and nothing in it is lost."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from maestro.domain.agents.edits import NewAgent
from maestro.domain.errors import NewerDatabase, OlderDatabase
from maestro.store.engine.schema import MIGRATIONS, check_schema, list_revisions, read_revision, upgrade_database
from maestro.store.store import Store
from tests.support.next_release import next_release


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of this release, with an agent."""
    path = tmp_path / "maestro.db"
    upgrade_database(path)
    with closing(Store(path)) as store, store.begin() as tx:
        tx.agents.create(NewAgent(slug="ada"), "operator")
    return path


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def written_by(path: Path, number: str) -> Path:
    """Let a database be that of another revision."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (number,))
    return path


def test_the_files_of_migrations_are_named_by_their_revisions() -> None:
    scripts = ScriptDirectory(str(MIGRATIONS))
    assert list(list_revisions()) == [script.revision for script in scripts.walk_revisions()][::-1]


def test_the_next_release_brings_a_database_of_this_one_up_to_date(old: Path, tmp_path: Path) -> None:
    with next_release(tmp_path) as newest:
        upgrade_database(old)
        assert read_revision(old) == newest
        check_schema(old)
    with closing(sqlite3.connect(old)) as database:
        assert database.execute("SELECT slug, motto FROM agents").fetchall() == [("ada", "onward")]
        assert database.execute("SELECT action FROM audit_log").fetchall() == [("agent.create",)]
    with pytest.raises(NewerDatabase, match=newest):
        upgrade_database(old)


def test_a_command_leaves_a_database_of_an_earlier_release_alone(old: Path, tmp_path: Path) -> None:
    with next_release(tmp_path), pytest.raises(OlderDatabase, match="maestro migrate"):
        check_schema(old)
    assert "mottos" not in tables(old)


@pytest.mark.parametrize("number", ["0001", "0013"])
def test_a_database_of_a_development_version_is_refused_and_left_alone(old: Path, number: str) -> None:
    written_by(old, number)
    for refusing in (upgrade_database, check_schema):
        with pytest.raises(OlderDatabase, match="To start afresh, stop Maestro, move"):
            refusing(old)
    assert read_revision(old) == number
