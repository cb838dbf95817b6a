"""What is kept from message to message: it is never out of date, whoever changes what it is made of."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.domain.errors import NotFound
from maestro.domain.messages import Address, IncomingMessage
from maestro.domain.settings.jobs import RoutingSettings
from maestro.domain.skills.files import SkillSource
from maestro.store.cache import MAX_CACHED, CachedRows
from tests.support.database import change
from tests.support.job_rows import JobRows
from tests.support.spoken import Spoken

SKILL = b"---\nslug: tea\nname: Tea\ntriggers: {keywords: [tea]}\n---\nBoil water first."
TEA = Address(platform="discord", account="main", channel="tea")


@pytest.fixture
def spoken(tmp_path: Path) -> Iterator[Spoken]:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.agents.save_agent(
            Agent(slug="bob", name="Bob", description="knows prices", created_at=tx.now, updated_at=tx.now)
        )
        tx.agents.skills.save_skill(SkillSource.parse_file("tea.md", SKILL, shipped=False))
    yield Spoken(rows)
    rows.store.close()


@pytest.fixture
def told(spoken: Spoken) -> Callable[[], str]:
    """Say something, and return the system message that the model reads."""
    return lambda: spoken.messages(spoken.prepared("a pot of tea"))[0].content


def elsewhere(folder: Path, statement: str) -> None:
    """Change the database as another process does."""
    change(folder / "maestro.db", statement)


@pytest.mark.parametrize(
    ("statement", "before", "after"),
    [
        ("UPDATE agents SET system_prompt = 'Be kind.' WHERE slug = 'ada'", "Be brief.", "Be kind."),
        ("UPDATE agents SET name = 'Clara' WHERE slug = 'ada'", "You are Ada,", "You are Clara,"),
        ("UPDATE agents SET description = 'knows pots' WHERE slug = 'bob'", '"knows prices"', '"knows pots"'),
        ("UPDATE agents SET status = 'paused' WHERE slug = 'bob'", '- @bob: "knows prices"', ""),
        ("UPDATE agents SET allow_users = 'web:u-7' WHERE slug = 'bob'", '- @bob: "knows prices"', ""),
        ("UPDATE agents SET skills = 'pot' WHERE slug = 'ada'", "Boil water first.", ""),
        ("UPDATE skills SET body = 'Warm the pot.'", "Boil water first.", "Warm the pot."),
        ("UPDATE skills SET keywords = '[\"coffee\"]'", "Boil water first.", ""),
        ("DELETE FROM skills", "Boil water first.", ""),
    ],
)
def test_a_change_in_another_process_counts_for_the_next_message(
    told: Callable[[], str], tmp_path: Path, statement: str, before: str, after: str
) -> None:
    first = told()
    assert before in first
    assert told() == first
    elsewhere(tmp_path, statement)
    changed = told()
    assert before not in changed
    assert after in changed


def test_each_person_hears_of_those_they_may_talk_to(spoken: Spoken, tmp_path: Path) -> None:
    elsewhere(tmp_path, "UPDATE agents SET allow_users = 'web:u-1' WHERE slug = 'bob'")

    def heard_of(user_id: str) -> bool:
        job_id = spoken.rows.add("tea?")
        elsewhere(tmp_path, f"UPDATE inbox SET user_id = '{user_id}' WHERE job_id = '{job_id}'")
        return "@bob" in spoken.messages(spoken.built(job_id))[0].content

    assert [heard_of(user_id) for user_id in ("u-1", "u-2", "u-1", "u-2")] == [True, False, True, False]


def test_a_transaction_that_changed_a_row_reads_it_anew(spoken: Spoken) -> None:
    store = spoken.rows.store
    with store.view() as tx:
        assert tx.agents.read(1).name == "Ada"
    with store.begin() as tx:
        assert tx.agents.read(1).name == "Ada"
        tx.agents.save_agent(tx.agents.get(1).sqlmodel_update({"name": "Clara"}))
        assert tx.agents.read(1).name == "Clara"
    with store.view() as tx:
        assert tx.agents.read(1).name == "Clara"


def test_a_change_that_is_rolled_back_leaves_nothing_behind(spoken: Spoken) -> None:
    store = spoken.rows.store
    with suppress(NotFound), store.begin() as tx:
        tx.agents.save_agent(tx.agents.get(1).sqlmodel_update({"name": "Clara"}))
        assert tx.agents.read(1).name == "Clara"
        raise NotFound("as it was")
    with store.view() as tx:
        assert tx.agents.read(1).name == "Ada"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE agent_channels SET agent_id = 2",
        "DELETE FROM agent_channels",
        "UPDATE agents SET status = 'paused' WHERE slug = 'ada'",
        "UPDATE bot_instances SET agent_id = 2",
    ],
)
def test_who_answers_follows_a_change_in_another_process(spoken: Spoken, tmp_path: Path, statement: str) -> None:
    message = IncomingMessage(
        id="1", address=TEA, user_id="u-1", user_name="Grace", content="hello", sent_at=spoken.rows.clock()
    )
    with spoken.rows.store.begin() as tx:
        tx.agents.save_binding(AgentChannel(agent_id=1, **TEA.model_dump(exclude={"thread"})))
        tx.agents.set_configured_agent("discord", "main", tx.agents.get(1))

    def decided() -> object:
        with spoken.rows.store.view() as tx:
            binding = tx.agents.read_binding(TEA)
            found = tx.agents.routing.read_snapshot(message, binding, RoutingSettings())
            return binding and binding.agent_id, found

    before = decided()
    assert decided() == before
    elsewhere(tmp_path, statement)
    assert decided() != before


def test_a_thing_is_made_once_in_an_edition() -> None:
    cache: CachedRows[str, int] = CachedRows()
    made = iter(range(100))
    assert [cache.get_or_make(1, "a", made.__next__), cache.get_or_make(1, "b", made.__next__)] == [0, 1]
    assert [cache.get_or_make(1, "a", made.__next__), cache.get_or_make(1, "b", made.__next__)] == [0, 1]
    assert [cache.get_or_make(2, "a", made.__next__), cache.get_or_make(2, "b", made.__next__)] == [2, 3]
    assert cache.get_or_make(1, "a", made.__next__) == 4
    assert cache.get_or_make(None, "a", made.__next__) == 5


def test_a_cache_holds_only_so_much() -> None:
    cache: CachedRows[int, int] = CachedRows()
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    for key in [*range(MAX_CACHED), *range(MAX_CACHED)]:
        assert cache.get_or_make(1, key, make) == key + 1
    assert cache.get_or_make(1, MAX_CACHED, make) == MAX_CACHED + 1
    assert cache.get_or_make(1, 0, make) == MAX_CACHED + 2, "it was full, and emptied"
