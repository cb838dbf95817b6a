"""What a memory tag asks an agent to remember (docs/decisions.md: tags, duplicate facts)."""

import pytest

from maestro.domain.memory.memory import MAX_FACT_CHARS, Fact, FactCategory, read_fact
from maestro.domain.tags.grammar import parse_answer


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        ("[MEMORY:sticky]\n likes\n  tea [/MEMORY]", Fact(FactCategory.STICKY, "likes tea")),
        ("[memory:User-Preference] tea", Fact(FactCategory.USER_PREFERENCE, "tea")),
        ("[MEMORY:hobby] tea", Fact(FactCategory.LEARNED_PATTERN, "tea")),
        ("[MEMORY:sticky note] tea [/MEMORY]", Fact(FactCategory.STICKY, "tea")),
    ],
)
def test_a_fact_is_one_line_of_a_known_category(answer: str, fact: Fact) -> None:
    [tag] = parse_answer(answer).tags
    assert read_fact(tag) == fact


def test_a_long_fact_is_cut() -> None:
    [tag] = parse_answer(f"[MEMORY:sticky] {'x' * 600} [/MEMORY]").tags
    fact = read_fact(tag)
    assert isinstance(fact, Fact)
    assert len(fact.content) == MAX_FACT_CHARS


@pytest.mark.parametrize("key", ["", ":"])
def test_without_a_category_the_agent_is_told_the_ones_there_are(key: str) -> None:
    [tag] = parse_answer(f"[MEMORY{key}] tea [/MEMORY]").tags
    reason = read_fact(tag)
    assert isinstance(reason, str)
    assert all(category in reason for category in FactCategory)


def test_an_empty_fact_is_none() -> None:
    [tag] = parse_answer("[MEMORY:sticky] [/MEMORY]").tags
    assert read_fact(tag) == "There was nothing to remember."
