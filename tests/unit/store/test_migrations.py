"""A database that an earlier release wrote: brought up to date by the next start, and nothing in it is lost."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from maestro.domain.agents.edits import NewAgent
from maestro.domain.errors import NewerDatabase, OlderDatabase, OlderReleaseRuns
from maestro.store.engine import schema
from maestro.store.engine.database import CONTRACT, Location
from maestro.store.engine.schema import (
    MIGRATIONS,
    check_schema,
    find_next_contract,
    find_required_contract,
    list_revisions,
    read_revision,
    upgrade_database,
)
from maestro.store.store import Store
from tests.support import postgresql
from tests.support.database import change, query
from tests.support.job_rows import Clock, JobRows
from tests.support.next_release import next_release
from tests.support.spoken import Spoken


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of this release, with an agent."""
    path = tmp_path / "maestro.db"
    upgrade_database(at(path))
    with closing(Store(path)) as store, store.begin() as tx:
        tx.agents.create(NewAgent(slug="ada"), "operator")
    return path


def at(path: Path) -> Location:
    """Return where the database of a path is."""
    return postgresql.database_url(path) if postgresql.wanted() else path


def written_by(path: Path, number: str) -> Path:
    """Let a database be that of another revision."""
    change(path, ("UPDATE alembic_version SET version_num = ?", number))
    return path


def test_the_files_of_migrations_are_named_by_their_revisions() -> None:
    scripts = ScriptDirectory(str(MIGRATIONS))
    assert list(list_revisions()) == [script.revision for script in scripts.walk_revisions()][::-1]


def test_the_next_release_brings_a_database_of_this_one_up_to_date(old: Path, tmp_path: Path) -> None:
    with next_release(tmp_path) as newest:
        upgrade_database(at(old))
        assert read_revision(at(old)) == newest
        check_schema(at(old))
    assert [tuple(row) for row in query(old, "SELECT slug, motto FROM agents")] == [("ada", "onward")]
    assert [row["action"] for row in query(old, "SELECT action FROM audit_log")] == ["agent.create"]


async def test_this_release_works_on_tables_that_the_next_one_has_expanded(old: Path, tmp_path: Path) -> None:
    """The next release added columns, a table and indexes; a process of this one was running and goes on."""
    with closing(Store(old, clock := Clock())) as store:
        before = Spoken(JobRows(store, clock))
        await before.answered("hello", "good morning")
        with next_release(tmp_path) as newest:
            upgrade_database(at(old))
        after = await before.answered("and now?", "as before")
        with store.begin() as tx:
            tx.agents.create(NewAgent(slug="grace"), "operator")
        with store.view() as tx:
            assert [agent.slug for agent in tx.agents.list_agents()] == ["ada", "grace"]
    check_schema(at(old))
    with closing(Store.open(old, clock)) as store:
        await Spoken(JobRows(store, clock)).answered("after a restart", "still here")
    assert read_revision(at(old)) == newest
    rows = query(old, "SELECT content FROM messages WHERE role = 'assistant' ORDER BY id")
    assert [row["content"] for row in rows] == ["good morning", "as before", "still here"]
    assert query(old, "SELECT colour FROM queue WHERE id = ?", after)[0]["colour"] == "green"


def test_this_release_refuses_tables_that_the_next_one_has_contracted(old: Path, tmp_path: Path) -> None:
    with next_release(tmp_path, contracts=True) as newest:
        assert find_next_contract(at(old)) == CONTRACT + 1
        upgrade_database(at(old))
        check_schema(at(old))
        assert find_next_contract(at(old)) == 0
    for refusing in (upgrade_database, check_schema):
        with pytest.raises(NewerDatabase, match=f"{newest}.*removed or changed what this version uses"):
            refusing(at(old))


def test_a_contracting_migration_waits_for_processes_connected_to_the_server(old: Path, tmp_path: Path) -> None:
    """On SQLite, the data folder knows the processes: ``tests/unit/cli/test_migrate.py``."""
    with closing(Store(old)) as running:
        with running.view() as tx:
            tx.jobs.count_pending()
        with next_release(tmp_path, contracts=True):
            if postgresql.wanted():
                with pytest.raises(OlderReleaseRuns, match="End it, then start this one again"):
                    upgrade_database(at(old))
                assert read_revision(at(old)) == list_revisions()[-2]
            running.close()
            upgrade_database(at(old))


def columns(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the types of all columns, by table and column."""
    with schema.administer(path) as connection:  # type: ignore[attr-defined]
        found = inspect(connection)
        return {
            table: {column["name"]: str(column["type"]) for column in found.get_columns(table)}
            for table in found.get_table_names()
        }


def required_columns(path: Path) -> set[tuple[str, str]]:
    """Return the columns that an insert has to name."""
    with schema.administer(path) as connection:  # type: ignore[attr-defined]
        found = inspect(connection)
        return {
            (table, column["name"])
            for table in found.get_table_names()
            for column in found.get_columns(table)
            if not (column["nullable"] or column["default"] or column.get("autoincrement") is True)
        }


def unique_keys(path: Path, tables: Mapping[str, object]) -> set[tuple[str, ...]]:
    """Return what must be unique in these tables."""
    with schema.administer(path) as connection:  # type: ignore[attr-defined]
        found: Any = inspect(connection)
        return {
            (table, *sorted(map(str, key["column_names"])))
            for table in tables
            for key in (*found.get_unique_constraints(table), *filter(itemgetter("unique"), found.get_indexes(table)))
        }


KEPT_BEFORE = {("queue", "lane")}
"""Keys that earlier releases keep unique as well: ``Jobs.mark_started`` has always let one job of a lane run."""


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of migrations that are the only ones of this release: the first."""
    versions = tmp_path / "some" / "versions"
    versions.mkdir(parents=True)
    (versions.parent / "env.py").write_text((MIGRATIONS / "env.py").read_text())
    monkeypatch.setattr(schema, "MIGRATIONS", versions.parent)
    yield versions
    list_revisions.cache_clear()


@pytest.mark.sqlite_only(reason="the database of a path has all migrations on PostgreSQL")
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")
def test_a_migration_that_begins_no_contract_only_expands(tmp_path: Path, migrations: Path) -> None:
    """Tables and columns stay with their types, inserts need no new values, and old rows break no new rule."""
    files = sorted((MIGRATIONS / "versions").glob("[0-9]*_*.py"))
    path = tmp_path / "growing.db"
    before: Mapping[str, Mapping[str, str]] = {}
    for file in files:
        for part in file.parent.glob(f"{file.stem}.*"):
            (migrations / part.name).write_bytes(part.read_bytes())
        list_revisions.cache_clear()
        needed, unique = (required_columns(path), unique_keys(path, before)) if before else (set(), set())
        upgrade_database(path)
        after = columns(path)
        if before and "_contract" not in file.stem:
            for table, types in before.items():
                assert types.items() <= after[table].items(), f"{file.name} removes or changes columns of {table}"
                added = {key for key in required_columns(path) if key[0] == table} - needed
                assert not added, f"{file.name} adds columns that an insert of the release before does not fill"
            assert unique_keys(path, before) - KEPT_BEFORE <= unique, f"{file.name} makes unique what was not"
        before = after


def test_this_release_keeps_the_contract_of_its_own_tables() -> None:
    assert find_required_contract() <= CONTRACT


def test_tables_without_a_recorded_contract_are_not_used_by_a_release_that_does_not_know_them(old: Path) -> None:
    change(old, "UPDATE alembic_version SET version_num = '9999', contract = 0")
    with pytest.raises(NewerDatabase, match="9999"):
        check_schema(at(old))


def test_a_command_leaves_a_database_of_an_earlier_release_alone(old: Path, tmp_path: Path) -> None:
    with next_release(tmp_path), pytest.raises(OlderDatabase, match="maestro migrate"):
        check_schema(at(old))
    assert "mottos" not in columns(old)


@pytest.mark.parametrize("number", ["0001", "0013"])
def test_a_database_of_a_development_version_is_refused_and_left_alone(old: Path, number: str) -> None:
    written_by(old, number)
    for refusing in (upgrade_database, check_schema):
        with pytest.raises(OlderDatabase, match="To start afresh, stop Maestro, move"):
            refusing(at(old))
    assert read_revision(at(old)) == number
