"""``maestro memory``: what an agent remembers, for people and as JSON, like on the API."""

from collections.abc import Sequence

import pytest

from maestro.domain.memory.memory import Fact, FactCategory
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro


@pytest.fixture(autouse=True)
def known(rows: JobRows) -> None:
    """Let the agent know a little."""
    with rows.store.begin() as tx:
        facts = ["likes tea", "lives in 東京", "writes\x1b[2J C++"]
        tx.memory.learn_facts(1, [Fact(FactCategory.USER_PREFERENCE, text) for text in facts], conversation_id=None)
        tx.memory.set_state(1, "last-topic", "tea")


def contents(page: dict[str, Sequence[dict[str, str]]]) -> list[str]:
    return [fact["content"] for fact in page["items"]]


def test_the_list_is_a_table_the_newest_first(rows: JobRows, maestro: Maestro) -> None:
    ran = maestro("memory", "list", "ada")
    assert ran.code == 0
    head, first, *_ = ran.out.splitlines()
    assert head.split() == ["FACT", "CATEGORY", "SURE", "LEARNED", "TOLD", "CONTENT"]
    assert first.split()[:3] == ["3", "user_preference", "0.80"]
    assert "\x1b" not in ran.out
    with rows.store.begin() as tx:
        tx.memory.learn_facts(
            1, [Fact(FactCategory.STICKY, "never call")], conversation_id=None, memory_scope="1/web/x"
        )
    assert "PLACE" in maestro("memory", "list", "ada").out
    assert "1/web/x" not in maestro("memory", "list", "ada", "--place", "").out
    assert contents(maestro("memory", "list", "ada", "--category", "sticky", "--json").json) == ["never call"]


def test_a_long_list_goes_on_where_it_ended(maestro: Maestro) -> None:
    page = maestro("memory", "list", "ada", "--limit", "2", "--json").json
    assert ([fact["id"] for fact in page["items"]], page["next"]) == ([3, 2], "2")
    assert "--cursor 2" in maestro("memory", "list", "ada", "--limit", "2").out
    assert contents(maestro("memory", "list", "ada", "--cursor", "2", "--json").json) == ["likes tea"]


def test_search_takes_any_text(maestro: Maestro) -> None:
    assert contents(maestro("memory", "search", "ada", "C++?", "--json").json) == ["writes\x1b[2J C++"]
    found = contents(maestro("memory", "search", "ada", "東京", "or", "tea", "--json").json)
    assert set(found) == {"lives in 東京", "likes tea"}
    assert maestro("memory", "search", "ada", "zebra").out == "No fact matches.\n"


def test_a_fact_is_added_changed_and_forgotten(maestro: Maestro) -> None:
    assert maestro("memory", "add", "ada", "has a cat", "--category", "sticky").out == "ada remembers it as fact 4\n"
    fact = maestro("memory", "change", "ada", "4", "--text", "has two cats", "--confidence", "0.5", "--json").json
    assert (fact["content"], fact["category"], fact["confidence"]) == ("has two cats", "sticky", 0.5)
    assert maestro("memory", "forget", "ada", "4").out == "ada has forgotten fact 4\n"
    assert maestro("memory", "forget", "ada", "3", "--json").json == {
        "agent": "ada",
        "fact": 3,
        "key": None,
        "facts": None,
    }


def test_what_cannot_be_is_refused_in_a_line(maestro: Maestro) -> None:
    for arguments, code, reason in (
        (("add", "ada", "Likes tea!"), 1, "fact 1 has the same content already"),
        (("add", "ada", " "), 2, "the fact is empty"),
        (("add", "ada", "x" * 501), 2, "501 characters"),
        (("forget", "ada", "77"), 1, "ada has no fact 77"),
        (("forget", "ada", "x"), 2, "no number of a fact"),
        (("forget", "ada", "9" * 30), 2, "no number of a fact"),
        (("forget", "ada", "0" * 19 + "9" * 5000), 2, "no number of a fact"),
        (("list", "ada", "--cursor", "9" * 30), 2, "--cursor"),
        (("list", "nobody"), 1, "there is no agent 'nobody'"),
        (("state", "forget", "ada", "mood"), 1, "has no state with this key"),
        (("state", "set", "ada", "k" * 101, "x"), 1, "101 characters"),
        (("state", "set", "ada", "k", ""), 2, "at least 1 character"),
    ):
        ran = maestro("memory", *arguments)
        assert (ran.code, ran.out) == (code, ""), arguments
        assert reason in " ".join(ran.err.replace("│", " ").split())


def test_states_are_set_listed_and_forgotten(maestro: Maestro) -> None:
    assert maestro("memory", "state", "set", "ada", "mood", "fine").code == 0
    head, topic, mood = maestro("memory", "state", "list", "ada").out.splitlines()
    assert head.split() == ["KEY", "SINCE", "VALUE"]
    assert (topic.split()[0], mood.split()[0], mood.split()[-1]) == ("last-topic", "mood", "fine")
    assert maestro("memory", "state", "forget", "ada", "mood").code == 0
    items = maestro("memory", "state", "list", "ada", "--json").json["items"]
    assert [(item["key"], item["value"]) for item in items] == [("last-topic", "tea")]


def test_everything_is_forgotten_only_when_it_is_meant(maestro: Maestro) -> None:
    assert maestro("memory", "clear", "ada").code == 1, "nobody was there to ask"
    assert len(maestro("memory", "list", "ada", "--json").json["items"]) == 3
    assert maestro("memory", "clear", "ada", "--yes").out == "ada has forgotten 3 facts and all state\n"
    assert maestro("memory", "list", "ada").out == "No fact matches.\n"
    assert maestro("memory", "state", "list", "ada").out == "The agent keeps no state.\n"
