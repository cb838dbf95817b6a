"""A database that an earlier release wrote: brought up to date by the next start, and nothing in it is lost."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from maestro.domain.errors import OlderDatabase
from maestro.domain.memory.facts import Fact
from maestro.domain.memory.memory import FactCategory
from maestro.domain.people.owners import PersonId
from maestro.store.engine.database import open_writer
from maestro.store.engine.schema import MIGRATIONS, check, revisions
from maestro.store.store import Store

GRACE = PersonId("discord", "1234")
AGENT = "INSERT INTO agents VALUES (7, 'ada', 'Ada', 'assistant', '', 'Be brief.', '', 'active', 0, ?, ?)"
ENTRY = "INSERT INTO audit_log VALUES (1, ?, 'operator', 'job.resume', 'message-1', '')"
FACT = (
    "INSERT INTO memory_facts (agent_id, category, content, confidence, created_at, access_count) "
    "VALUES (7, 'sticky', 'Grace drinks tea in 東京.', 0.8, ?, 0)"
)
THEN = "2026-11-01T08:00:00.000000+00:00"


def move(path: Path, revision: str, *, back: bool = False) -> None:
    """Bring the tables of a file to a revision, upwards unless told otherwise."""
    engine = open_writer(path)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        (command.downgrade if back else command.upgrade)(config, revision)
    engine.dispose()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of the first release, with an agent and an entry in its log."""
    path = tmp_path / "maestro.db"
    move(path, "0001")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(AGENT, (THEN, THEN))
        database.execute(ENTRY, (THEN,))
    return path


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_the_files_of_migrations_are_named_by_their_revisions() -> None:
    scripts = ScriptDirectory(str(MIGRATIONS))
    assert list(revisions()) == [script.revision for script in scripts.walk_revisions()][::-1]


def test_a_database_of_the_first_release_gets_owners_and_keeps_what_it_has(old: Path) -> None:
    assert "owners" not in tables(old)
    with closing(Store.open(old)) as store:
        with store.begin() as tx:
            assert tx.users.owners.add(GRACE, "operator")
        with store.view() as tx:
            agent = tx.agents.by_slug("ada")
            assert agent is not None
            assert (agent.id, agent.system_prompt, agent.created_at.isoformat()[:10]) == (7, "Be brief.", "2026-11-01")
            assert [entry.action for entry in tx.system.audit.latest(10)] == ["job.resume"]
            assert tx.users.owners.has(GRACE)
    check(old)


def test_what_an_agent_learned_under_an_earlier_release_is_found_and_not_learned_again(old: Path) -> None:
    with closing(sqlite3.connect(old)) as database, database:
        database.execute(FACT, (THEN,))
    with closing(Store.open(old)) as store, store.begin() as tx:
        again = Fact(FactCategory.STICKY, "grace drinks the tea in 東京")
        assert tx.memory.learn(7, [again], conversation_id=None) == 0
        assert [fact.content for fact in tx.memory.search(7, "東京", 5)] == ["Grace drinks tea in 東京."]


def test_a_command_leaves_a_database_of_the_first_release_alone(old: Path) -> None:
    with pytest.raises(OlderDatabase, match="maestro migrate"):
        check(old)
    assert "owners" not in tables(old)


def test_a_database_can_go_back(old: Path) -> None:
    Store.open(old).close()
    move(old, "0001", back=True)
    with pytest.raises(OlderDatabase):
        check(old)
    with closing(Store.open(old)) as store, store.view() as tx:
        assert [agent.slug for agent in tx.agents.all()] == ["ada"]
        assert tx.users.owners.all() == []


def test_messages_that_files_came_with_under_an_earlier_release_still_have_them(old: Path) -> None:
    with closing(sqlite3.connect(old)) as database, database:
        for number, attachments in ((1, '[{"id": "a"}]'), (2, "[]")):
            insert(database, "inbox", id=number, message_id=f"m-{number}", attachments=attachments)
            insert(database, "messages", id=number, conversation_id=1, role="user", inbox_id=number)
            insert(database, "messages_archive", id=9 + number, conversation_id=1, role="user", inbox_id=number)
    with closing(Store.open(old)) as store, store.view() as tx:
        assert [(line.id, line.has_files) for line in tx.conversations.newest(1, 9, 9)] == [(2, False), (1, True)]
        assert [tx.conversations.message(number).has_files for number in (10, 11)] == [True, False]


def insert(database: sqlite3.Connection, table: str, **values: object) -> None:
    """Add a row with these values and, where a column needs one, the time or 0."""
    for _, name, kind, needed, default, _ in database.execute(f"PRAGMA table_info({table})").fetchall():
        if needed and default is None:
            values.setdefault(name, THEN if kind.startswith("VARCHAR") else 0)
    places = ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})", [*values.values()])
