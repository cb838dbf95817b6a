"""The strict reader of what a model wants remembered."""

import pytest

from maestro.domain.memory.memory import MAX_FACT_CHARS, Fact, FactCategory, parse_facts


def test_every_category_is_read() -> None:
    answer = "\n".join(f"[MEMORY:{category}] about {category} [/MEMORY]" for category in FactCategory)
    assert parse_facts(answer) == tuple(Fact(category, f"about {category}") for category in FactCategory)


@pytest.mark.parametrize(
    "line",
    [
        "[MEMORY:sticky] One fact. [/MEMORY]",
        "  - [memory:STICKY]One   fact.[/memory]  ",
        "12. [MEMORY:sticky] One fact. [/MEMORY]",
        "[MEMORY:user-preference] One fact. [/MEMORY]",
    ],
)
def test_small_liberties_are_taken(line: str) -> None:
    assert [fact.content for fact in parse_facts(f"Here they are:\n{line}\nThat is all.")] == ["One fact."]


def test_several_on_one_line_are_read() -> None:
    answer = "[MEMORY:sticky] a [/MEMORY] [MEMORY:learned_pattern] b [/MEMORY]"
    assert parse_facts(answer) == (Fact(FactCategory.STICKY, "a"), Fact(FactCategory.LEARNED_PATTERN, "b"))


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "NONE",
        "> [MEMORY:sticky] quoted from the conversation [/MEMORY]",
        "The user wrote [MEMORY:sticky] x [/MEMORY]",
        "[MEMORY:sticky] never closed",
        "[MEMORY:sticky] one [MEMORY:sticky] inside [/MEMORY] another [/MEMORY]",
        "[MEMORY:sticky]   [/MEMORY]",
        "[MEMORY:sticky] writes [create_agent] often [/MEMORY]",
        "[MEMORY:sticky] over\ntwo lines [/MEMORY]",
    ],
)
def test_everything_else_is_no_fact(answer: str) -> None:
    assert parse_facts(answer) == ()


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("Preferences", FactCategory.USER_PREFERENCE),
        ("user-hobby", FactCategory.USER_PREFERENCE),
        ("projects", FactCategory.PROJECT_CONTEXT),
        ("event", FactCategory.IMPORTANT_EVENT),
        ("sticky-note", FactCategory.STICKY),
        ("hobby", FactCategory.LEARNED_PATTERN),
        ("趣味", FactCategory.LEARNED_PATTERN),
    ],
)
def test_a_category_of_the_models_own_is_the_nearest_one(name: str, category: FactCategory) -> None:
    assert parse_facts(f"[MEMORY:{name}] plays chess [/MEMORY]") == (Fact(category, "plays chess"),)


def test_the_same_fact_counts_once_and_a_long_one_is_cut() -> None:
    answer = "[MEMORY:sticky] Tea. [/MEMORY]\n[MEMORY:sticky] tea [/MEMORY]\n[MEMORY:project_context] tea [/MEMORY]"
    assert [fact.category for fact in parse_facts(answer)] == [FactCategory.STICKY, FactCategory.PROJECT_CONTEXT]
    [long] = parse_facts(f"[MEMORY:sticky] {'x' * 10_000} [/MEMORY]")
    assert len(long.content) == MAX_FACT_CHARS
