"""What agents remember, on a real database: repeats, places, searches, states and what operators change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.agents.agent import Agent
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.memory.memory import (
    MAX_FACT_CHARS,
    MAX_STATES,
    MAX_VALUE_CHARS,
    Fact,
    FactCategory,
    FactChange,
    FactFilter,
    MemoryFact,
    NewFact,
    StateChange,
)
from maestro.store.memory.memory import INDEX, MOST_STICKY, Memory
from maestro.store.transaction import Transaction
from tests.support import postgresql
from tests.support.database import change
from tests.support.fresh_store import path_of
from tests.support.job_rows import JobRows
from tests.support.plans import explain_prepared

PREFERENCE, STICKY = FactCategory.USER_PREFERENCE, FactCategory.STICKY
HERE, THERE = "1/web/default/here//", "1/web/default/there//"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.agents.save_agent(Agent(slug="bob", name="Bob", created_at=tx.now, updated_at=tx.now))
    yield rows
    rows.store.close()


def learn(rows: JobRows, *contents: str, place: str = "", category: FactCategory = PREFERENCE) -> int:
    """Let the agent learn some facts at once."""
    with rows.store.begin() as tx:
        facts = [Fact(category, content) for content in contents]
        return tx.memory.learn_facts(1, facts, conversation_id=None, memory_scope=place)


def found(rows: JobRows, query: str, place: str = "", agent_id: int = 1) -> list[str]:
    with rows.store.view() as tx:
        return contents(tx.memory.search_facts(agent_id, query, 20, place))


def contents(facts: object) -> list[str]:
    assert isinstance(facts, list | tuple)
    return [fact.content for fact in facts]


def best(rows: JobRows, others: int = 15, place: str = "") -> list[MemoryFact]:
    with rows.store.view() as tx:
        facts = {fact.id: fact for fact in tx.memory.search_facts(1, "", 1_000, place)}
        return [facts[told.id] for told in tx.memory.find_best_facts(1, others, place)]


def ada(tx: Transaction) -> Agent:
    return tx.agents.get(1)


# Repeats


def test_a_repeat_makes_the_known_fact_surer_and_is_not_kept(rows: JobRows) -> None:
    assert learn(rows, "User likes tea.", "the user likes tea", "User likes green tea") == 2
    rows.clock.go(days=3)
    assert learn(rows, "USER LIKES TEA!") == 0
    known = {fact.content: fact for fact in best(rows)}
    assert known["User likes tea."].confidence > known["User likes green tea"].confidence
    assert known["User likes tea."].last_accessed == rows.clock.now
    assert known["User likes tea."].access_count == 0, "no model heard it"
    assert known["User likes green tea"].last_accessed is None


def test_another_category_or_another_agent_may_know_the_same(rows: JobRows) -> None:
    assert learn(rows, "likes tea") == 1
    assert learn(rows, "likes tea", category=STICKY) == 1
    with rows.store.begin() as tx:
        assert tx.memory.learn_facts(2, [Fact(PREFERENCE, "likes tea")], conversation_id=None) == 1


def test_what_is_known_everywhere_is_known_in_every_place(rows: JobRows) -> None:
    assert learn(rows, "likes tea") == 1
    assert learn(rows, "likes tea", place=HERE) == 0
    assert learn(rows, "likes milk", place=HERE) == 1
    assert learn(rows, "likes milk", place=THERE) == 1
    assert learn(rows, "likes milk") == 1, "what only one place knows is not known everywhere"


def test_a_fact_is_one_line_with_an_end(rows: JobRows) -> None:
    learn(rows, "several\nlines\u2028of  text", "x" * 10_000, "a\ud800b")
    known = {fact.content for fact in best(rows)}
    assert known == {"several lines of text", "x" * MAX_FACT_CHARS, "a\ufffdb"}


def test_facts_that_differ_in_a_number_are_told_apart_among_many(rows: JobRows) -> None:
    many = [f"fact number {number} of so many, on subject {number % 7}" for number in range(200)]
    assert learn(rows, *many) == 200
    assert learn(rows, *many, "Fact number 8 of so many on subject 1", "fact number 8 of so many, on subject 2") == 1


# Places


def test_a_place_sees_its_own_and_what_holds_everywhere(rows: JobRows) -> None:
    learn(rows, "likes tea")
    learn(rows, "likes milk", place=HERE)
    learn(rows, "never call after six", place=HERE, category=STICKY)
    assert {fact.content for fact in best(rows, place=HERE)} == {"likes tea", "likes milk", "never call after six"}
    assert {fact.content for fact in best(rows, place=THERE)} == {"likes tea"}
    assert {fact.content for fact in best(rows)} == {"likes tea"}
    assert set(found(rows, "likes", HERE)) == {"likes tea", "likes milk"}
    assert found(rows, "likes", THERE) == found(rows, "likes") == ["likes tea"]


def test_an_agent_without_facts_has_none(rows: JobRows) -> None:
    assert best(rows) == []
    assert found(rows, "anything") == []


# What is told


def test_of_too_many_sticky_facts_only_the_surest_are_read(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        for number in range(MOST_STICKY + 5):
            sure = 0.9 if number < MOST_STICKY else 0.2
            fact = MemoryFact(
                agent_id=1, category=STICKY, content=f"number {number}", confidence=sure, created_at=tx.now
            )
            tx.memory.save_fact(fact)
    read = best(rows)
    assert len(read) == MOST_STICKY
    assert {fact.confidence for fact in read} == {0.9}


def test_sticky_facts_come_always_and_of_the_others_the_surest(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        for number, confidence in enumerate((0.3, 0.9, 0.6)):
            facts = [Fact(PREFERENCE, f"fact {number}")]
            tx.memory.learn_facts(1, facts, conversation_id=None, confidence=confidence)
        tx.memory.learn_facts(1, [Fact(STICKY, "always")], conversation_id=None, confidence=0.1)
    assert contents(best(rows, 2)) == ["always", "fact 1", "fact 2"]
    assert contents(best(rows, 0)) == ["always"]


def test_what_nobody_needed_for_long_gives_way(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        tx.memory.learn_facts(1, [Fact(PREFERENCE, "once certain")], conversation_id=None, confidence=1)
        tx.memory.learn_facts(1, [Fact(PREFERENCE, "once told")], conversation_id=None, confidence=1)
    rows.clock.go(days=200)
    learn(rows, "new today")
    with rows.store.begin() as tx:
        tx.memory.record_use([fact for fact in tx.memory.find_best_facts(1, 9) if fact.content == "once told"])
    assert contents(best(rows)) == ["once told", "new today", "once certain"]


def test_the_surest_are_read_in_the_order_of_their_index(rows: JobRows, tmp_path: Path) -> None:
    plan = explain_prepared(tmp_path / "maestro.db", Memory._BEST)
    assert plan.in_order == ("ix_memory_facts_surest",) * 2, f"nothing is sorted that is not read: {plan}"
    assert "memory_facts" not in plan.scanned


def test_being_told_is_counted_once_an_hour(rows: JobRows) -> None:
    learn(rows, "User likes tea.", "User has a dog.")
    learn(rows, "User has a dog.")
    counts = [tell(rows) for _ in range(3)]
    assert counts == [{1}, {1}, {1}], "what was never told is counted, even if it was said again just now"
    rows.clock.go(minutes=59)
    learn(rows, "User has a cat.")
    assert tell(rows) == {1}, "the new one at once"
    rows.clock.go(minutes=1)
    assert tell(rows) == {1, 2}, "those of an hour ago again, the new one not yet"


def tell(rows: JobRows) -> set[int]:
    """Tell all there is, and return how often what is known was told."""
    with rows.store.begin() as tx:
        tx.memory.record_use(tx.memory.find_best_facts(1, 15))
    return {fact.access_count for fact in best(rows)}


# Searching

SAID = (
    "Grace likes cats",
    "The project is written in C++ and C#",
    "What's up is how Grace says hello",
    "グレースは東京に住んでいます",
    "用户喜欢喝茶",
    "ชอบดื่มชาเขียว",
    "Клиент любит чёрный чай",
    "Meets in the café at noon",
    "हिन्दी बोलता है",
    "서울에 살고 있습니다",
    "uses snake_case and a-b names",
    "AND gates NEAR the door",
)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRows]:
    """A store whose agent has learned all that, for tests that only read."""
    rows = JobRows.at(tmp_path_factory.mktemp("said"))
    learn(rows, *SAID)
    yield rows
    rows.store.close()


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("cat", 0),
        ("C++?", 1),
        ("c#", 1),
        ("what's up", 2),
        ("what’s", 2),
        ("東京", 3),
        ("住", 3),
        ("東京はどこ", 3),
        ("喝茶", 4),
        ("ชาเขียว", 5),
        ("любит ЧАЙ", 6),
        ("чёрный", 6),
        ("Cafe", 7),
        ("CAFÉ", 7),
        ("ｃａｆé", 7),
        ("हिन्दी", 8),
        ("서울", 9),
        ("a-b", 10),
        ("snake_case", 10),
        ("AND", 11),
        ("NEAR(", 11),
        ('"gates" OR (NOT x*) -- \'; drop', 11),
        ("gates* ^gates agent_id : 2", 11),
        ("🎉 gates 🎉", 11),
    ],
)
def test_any_text_finds_what_it_names_in_any_script(said: JobRows, query: str, place: int) -> None:
    assert found(said, query)[0] == SAID[place]


@pytest.mark.parametrize("query", ["", "?!", "🎉", "\x00", '"', "'", "*", "()", "-"])
def test_what_has_no_words_finds_the_surest(said: JobRows, query: str) -> None:
    assert found(said, query) == list(SAID[::-1])


def test_a_page_of_text_is_a_query(said: JobRows) -> None:
    assert set(found(said, "cats " + "東京" * 100_000 + " word" * 60_000)) == {SAID[0], SAID[3]}


def test_the_surer_of_two_that_fit_alike_comes_first_and_whole_words_before_beginnings(rows: JobRows) -> None:
    learn(rows, "likes category theory", "likes a cat there")
    assert found(rows, "cat") == ["likes a cat there", "likes category theory"]
    with rows.store.begin() as tx:
        tx.memory.learn_facts(1, [Fact(PREFERENCE, "has dogs of Ulm")], conversation_id=None, confidence=0.4)
        tx.memory.learn_facts(1, [Fact(PREFERENCE, "has dogs of Bonn")], conversation_id=None, confidence=0.9)
        tx.memory.learn_facts(1, [Fact(PREFERENCE, "has dogs of Rome")], conversation_id=None, confidence=0.6)
    assert found(rows, "dogs") == ["has dogs of Bonn", "has dogs of Rome", "has dogs of Ulm"]


def test_the_index_follows_every_change(rows: JobRows) -> None:
    learn(rows, "likes tea", "likes milk")
    with rows.store.begin() as tx:
        edits = tx.memory
        edits.change_fact(ada(tx), 1, FactChange(content="likes coffee"), "operator")
        edits.delete_fact(ada(tx), 2, "operator")
    assert found(rows, "tea") == found(rows, "milk") == []
    assert found(rows, "coffee") == ["likes coffee"]
    with rows.store.begin() as tx:
        assert tx.memory.delete_all(ada(tx), "operator") == 1
    assert found(rows, "coffee") == []
    whole(rows)


def whole(rows: JobRows) -> None:
    """Let FTS5 compare its index with the facts; it raises when they differ. PostgreSQL computes its index itself."""
    if not postgresql.wanted():
        change(path_of(rows.store), f"INSERT INTO {INDEX} ({INDEX}, rank) VALUES ('integrity-check', 1)")


# States


def test_the_newest_value_of_a_key_is_kept(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        assert tx.memory.set_state(1, " last-topic ", " x ") == ""
        assert tx.memory.set_state(1, "last-topic", "y") == ""
        assert tx.memory.set_state(2, "last-topic", "z") == ""
        assert [(state.key, state.value) for state in tx.memory.read_states(1)] == [("last-topic", "y")]
        assert tx.memory.set_state(1, "last-topic", " ") == ""
        assert tx.memory.read_states(1) == []


def test_a_place_has_values_of_its_own(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        tx.memory.set_state(1, "b", "general")
        tx.memory.set_state(1, "a", "general")
        tx.memory.set_state(1, "b", "here", HERE)
        assert [(state.key, state.value) for state in tx.memory.read_states(1, HERE)] == [
            ("a", "general"),
            ("b", "here"),
        ]
        assert [state.value for state in tx.memory.read_states(1, THERE)] == ["general", "general"]
        assert tx.memory.delete_state(1, "b", HERE)
        assert not tx.memory.delete_state(1, "b", HERE)
        assert [state.value for state in tx.memory.read_states(1, HERE)] == ["general", "general"]


def test_states_have_an_end(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        for number in range(MAX_STATES):
            assert tx.memory.set_state(1, f"key-{number}", "x") == ""
        assert f"{MAX_STATES} keys are kept already" in tx.memory.set_state(1, "one-more", "x")
        assert tx.memory.set_state(1, "key-7", "changed") == "", "a key that is there can change"
        assert tx.memory.set_state(1, "one-more", "x", HERE) == ""
        assert str(MAX_VALUE_CHARS) in tx.memory.set_state(1, "key-7", "x" * (MAX_VALUE_CHARS + 1))
        assert len(tx.memory.read_states(1)) == MAX_STATES


# What operators do


def test_operators_see_facts_in_pages_and_those_of_every_place(rows: JobRows) -> None:
    learn(rows, "likes tea", "likes milk", "likes wine")
    learn(rows, "likes rum", place=HERE)
    learn(rows, "never rum", category=STICKY)
    with rows.store.view() as tx:
        edits = tx.memory
        first, following = edits.list_facts(ada(tx), FactFilter(), None, 3)
        rest, end = edits.list_facts(ada(tx), FactFilter(), following, 3)
        assert contents([*first, *rest]) == ["never rum", "likes rum", "likes wine", "likes milk", "likes tea"]
        assert end is None
        assert contents(edits.list_facts(ada(tx), FactFilter(category=STICKY), None, 9)[0]) == ["never rum"]
        assert contents(edits.list_facts(ada(tx), FactFilter(q="rum", place=""), None, 9)[0]) == ["never rum"]
        assert len(edits.list_facts(ada(tx), FactFilter(q="rum"), None, 9)[0]) == 2
        assert edits.list_facts(tx.agents.get(2), FactFilter(q="rum"), None, 9) == ([], None)


def test_what_operators_change_is_noted_without_what_it_says(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        edits, agent = tx.memory, ada(tx)
        fact = edits.add_fact(agent, NewFact(content="the vault opens with 1234"), "operator")
        assert fact.confidence == 1
        edits.change_fact(agent, fact.id or 0, FactChange(category=STICKY, confidence=0.5), "operator")
        edits.put_state(agent, "vault", StateChange(value="1234"), "operator")
        edits.delete_state_of_agent(agent, "vault", "", "operator")
        edits.delete_fact(agent, fact.id or 0, "operator")
        edits.delete_all(agent, "operator")
    with rows.store.view() as tx:
        noted = tx.system.audit.list_latest_entries(10)[::-1]
    assert [(entry.action, entry.subject, entry.detail) for entry in noted] == [
        ("memory.add", "ada", "fact 1"),
        ("memory.change", "ada", "fact 1"),
        ("memory.state.set", "ada", "state 1"),
        ("memory.state.forget", "ada", "state 1"),
        ("memory.forget", "ada", "fact 1"),
        ("memory.clear", "ada", "0 facts"),
    ]


def test_operators_cannot_repeat_a_fact_nor_touch_another_agents(rows: JobRows) -> None:
    learn(rows, "likes tea", "likes milk")
    with rows.store.begin() as tx:
        edits, agent = tx.memory, ada(tx)
        with pytest.raises(Conflict, match="fact 1 has the same content already"):
            edits.add_fact(agent, NewFact(content="Likes tea!"), "operator")
        with pytest.raises(Conflict, match="fact 1 has the same content already"):
            edits.change_fact(agent, 2, FactChange(content="likes the tea"), "operator")
        edits.change_fact(agent, 2, FactChange(content="likes the milk"), "operator")
        with pytest.raises(NotFound, match="bob has no fact 1"):
            edits.delete_fact(tx.agents.get(2), 1, "operator")
        with pytest.raises(NotFound):
            edits.delete_state_of_agent(agent, "nothing", "", "operator")
