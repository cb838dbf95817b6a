"""What the database itself tells of changes to agents, skills and accounts."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from maestro.domain.agents.agent import AgentChannel
from maestro.domain.columns import RowVersions
from maestro.domain.conversations.conversation import Compaction
from maestro.domain.errors import NotFound
from maestro.domain.llm.accounts import AccountSource, AccountType, ModelAccount
from maestro.domain.messages import Address
from maestro.domain.skills.files import SkillSource
from maestro.store.transaction import open_savepoint
from tests.support.conversations import talk_with
from tests.support.database import change, columns
from tests.support.job_rows import JobRows

SKILL = b"---\nslug: tea\nname: Tea\ntriggers: {keywords: [tea]}\n---\nBoil water first."


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.agents.skills.save_skill(SkillSource.parse_file("tea.md", SKILL, shipped=False))
        talk = talk_with(tx, 1, Address(platform="web", channel="tea"))
        tx.conversations.compactions.add_compaction(
            Compaction(
                conversation_id=talk.id or 0,
                agent_id=1,
                summary="prices",
                messages_before=2,
                messages_after=1,
                tokens_saved=9,
                created_at=tx.now,
            )
        )
        tx.memory.set_state(1, "topic", "prices")
        tx.agents.save_binding(AgentChannel(agent_id=1, platform="discord", account="main", channel="tea"))
        tx.llm.accounts.add_account(
            ModelAccount(
                name="main",
                type=AccountType.API_KEY,
                provider="p",
                model="m",
                source=AccountSource.API,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
    yield rows
    rows.store.close()


def now(rows: JobRows) -> RowVersions:
    with rows.store.view() as tx:
        return tx.system.versions.read_versions()


KEPT = pytest.mark.sqlite_only(reason="PostgreSQL checks foreign keys for every program, so rows of an agent keep it")


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("agents", "UPDATE agents SET description = 'knows prices'"),
        ("agents", "INSERT INTO agents SELECT 7, 'eve' {others} FROM agents"),
        pytest.param("agents", "DELETE FROM agents", marks=KEPT),
        ("agent_channels", "UPDATE agent_channels SET permission = 'readonly'"),
        ("agent_channels", "INSERT INTO agent_channels SELECT 77, agent_id, 'x' {others} FROM agent_channels LIMIT 1"),
        ("agent_channels", "DELETE FROM agent_channels"),
        ("compactions", "UPDATE compactions SET summary = 'tea'"),
        ("compactions", "INSERT INTO compactions SELECT 77, conversation_id {others} FROM compactions"),
        ("compactions", "DELETE FROM compactions"),
        ("memory_state", "UPDATE memory_state SET value = 'pots'"),
        ("memory_state", "INSERT INTO memory_state SELECT 77, agent_id, 'x' {others} FROM memory_state"),
        ("memory_state", "DELETE FROM memory_state"),
        ("skills", "UPDATE skills SET enabled = false"),
        ("skills", "INSERT INTO skills SELECT 'pot' {others} FROM skills"),
        ("skills", "DELETE FROM skills"),
        ("accounts", "UPDATE accounts SET model = 'n'"),
        ("accounts", "UPDATE accounts SET status = 'disabled'"),
        ("accounts", "INSERT INTO accounts SELECT 7, 'other' {others} FROM accounts"),
        ("accounts", "DELETE FROM accounts"),
    ],
)
def test_every_change_of_a_row_draws_a_new_edition_of_its_kind(
    rows: JobRows, tmp_path: Path, kind: str, statement: str
) -> None:
    before = now(rows)
    path, known = tmp_path / "maestro.db", {"skills": 1, "agent_channels": 3, "memory_state": 3}.get(kind, 2)
    change(path, statement.format(others="".join(f', "{name}"' for name in columns(path, kind)[known:])))
    after = now(rows)
    assert [one for one in RowVersions._fields if getattr(before, one) != getattr(after, one)] == [kind]


def test_what_is_counted_of_an_account_is_no_change(rows: JobRows) -> None:
    before = now(rows)
    with rows.store.begin() as tx:
        tx.llm.accounts.record_success("main", "m", 0.25)
    assert now(rows) == before


def test_the_edition_of_a_change_that_was_rolled_back_never_comes_again(rows: JobRows) -> None:
    before, seen = now(rows), set()
    for undone in (True, False):
        with rows.store.begin() as tx, suppress(NotFound), open_savepoint(tx):
            tx.agents.save_agent(tx.agents.get(1).sqlmodel_update({"name": f"Eve {undone}"}))
            seen.add(tx.system.versions.read_versions().agents)
            if undone:
                raise NotFound("as it was")
        assert (now(rows) == before) is undone
    assert len(seen) == 2


def test_after_all_editions_were_deleted_a_change_draws_one(rows: JobRows, tmp_path: Path) -> None:
    change(tmp_path / "maestro.db", "DELETE FROM editions")
    assert now(rows) == RowVersions()
    with rows.store.begin() as tx:
        tx.agents.skills.set_enabled("tea", enabled=False)
    assert now(rows).skills is not None
