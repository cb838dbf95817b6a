"""Searching what an agent has learned."""

from pathlib import Path

import pytest

from maestro.domain.memory.memory import Fact, FactCategory
from maestro.domain.messages import Address
from maestro.tools.base import ToolCaller
from maestro.tools.local import MemorySearch
from maestro.tools.registry import parse_arguments
from tests.support.conversations import talk_with
from tests.support.job_rows import JobRows

FACTS = [
    "Grace likes cats",
    "Grace's bike is red; she catalogues bikes",
    "The project is written in C++ and C#",
    "What's up is how Grace says hello",
    "グレースは東京に住んでいます",
    "AND gates are her favourite",
]


@pytest.fixture
def rows(tmp_path: Path) -> JobRows:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        address = Address(platform="web", channel="code")
        conversation = talk_with(tx, 1, address)
        for content in FACTS:
            tx.memory.learn_facts(1, [Fact(FactCategory.USER_PREFERENCE, content)], conversation_id=conversation.id)
    return rows


def search(rows: JobRows, query: str, agent_id: int = 1, **more: int) -> list[str]:
    """Search as an activity does, in a transaction that cannot write."""
    caller = ToolCaller("job", agent_id, 1, Path())
    with rows.store.view() as tx:
        told = MemorySearch().act(tx, {"query": query, **more}, caller)
    return [line.partition("] ")[2] for line in told.splitlines()] if told.startswith("- ") else []


def test_whole_words_come_before_beginnings(rows: JobRows) -> None:
    assert search(rows, "cats") == [FACTS[0]]
    assert search(rows, "cat") == [FACTS[0], FACTS[1]], "the shorter says more of it"
    assert search(rows, "grace CATS") == [FACTS[0], FACTS[3], FACTS[1]]
    assert search(rows, "red bikes") == [FACTS[1]]


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("what's up", 3),
        ("C++?", 2),
        ("c#", 2),
        ("AND", 5),
        ("東京", 4),
        ('"gates" OR (NOT x*) -- \'; drop', 5),
        ("favour%_", 5),
    ],
)
def test_any_text_is_a_query(rows: JobRows, query: str, fact: int) -> None:
    assert search(rows, query)[0] == FACTS[fact]


@pytest.mark.parametrize("query", ["", "   ", "?!", "()"])
def test_without_a_word_it_tells_the_surest_facts(rows: JobRows, query: str) -> None:
    assert search(rows, query, limit=2) == [FACTS[5], FACTS[4]]


def test_nothing_fitting_is_said(rows: JobRows) -> None:
    with rows.store.view() as tx:
        assert (
            MemorySearch().act(tx, {"query": "zebra"}, ToolCaller("job", 1, 1, Path())) == "Nothing you remember fits."
        )


def test_no_agent_finds_what_another_knows(rows: JobRows) -> None:
    assert search(rows, "grace", agent_id=2) == []


def test_it_tells_no_more_than_asked_for(rows: JobRows) -> None:
    assert len(search(rows, "grace")) == 3
    assert len(search(rows, "grace", limit=1)) == 1
    assert (
        parse_arguments(MemorySearch.spec.name, MemorySearch.spec.parameters, '{"query": "x", "limit": 20}')["limit"]
        == 20
    )
