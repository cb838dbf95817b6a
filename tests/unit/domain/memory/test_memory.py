"""Where an agent remembers, how sure it stays, and which facts it is told."""

from datetime import UTC, datetime, timedelta

import pytest

from maestro.domain.agents.agent import Agent, MemoryScope, recalls_per_conversation
from maestro.domain.memory.memory import (
    FRESH,
    MAX_KEY_CHARS,
    MAX_VALUE_CHARS,
    FactRank,
    confirmed_confidence,
    current_confidence,
    rank_facts,
    state_problem,
)

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def fact(confidence: float, days: float = 0, fact_id: int = 1) -> FactRank:
    return FactRank(fact_id, confidence, NOW - timedelta(days=days))


@pytest.mark.parametrize(
    ("own", "general", "apart"),
    [
        (None, MemoryScope.AGENT, False),
        (None, MemoryScope.CONVERSATION, True),
        (MemoryScope.AGENT, MemoryScope.CONVERSATION, False),
        (MemoryScope.CONVERSATION, MemoryScope.AGENT, True),
    ],
)
def test_the_agents_own_scope_beats_the_settings(own: MemoryScope | None, general: MemoryScope, apart: bool) -> None:
    agent = Agent(slug="a", name="A", memory_scope=own, created_at=NOW, updated_at=NOW)
    assert recalls_per_conversation(agent, general) is apart


def test_what_is_said_again_is_surer_and_never_more_than_certain() -> None:
    assert confirmed_confidence(0.8, 0.8) == pytest.approx(0.85)
    assert confirmed_confidence(0.2, 0.8) == pytest.approx(0.85)
    assert confirmed_confidence(1.0, 0.5) == 1.0
    confidence = 0.0
    for _ in range(100):
        confidence = confirmed_confidence(confidence, 0.8)
    assert 0.99 < confidence <= 1


def test_what_nobody_needs_fades_and_never_goes() -> None:
    month = FRESH.days
    assert current_confidence(fact(0.8, month - 1), NOW) == 0.8
    assert current_confidence(fact(0.8, month), NOW) == pytest.approx(0.72)
    assert current_confidence(fact(0.8, 3 * month), NOW) == pytest.approx(0.8 * 0.9**3)
    assert current_confidence(fact(0.8, 10_000), NOW) == pytest.approx(0.1)
    assert current_confidence(fact(0.05, 10_000), NOW) == 0.05
    assert current_confidence(fact(0.8, -5), NOW) == 0.8, "a clock that was set back does no harm"


def test_the_surest_are_told_then_those_used_last_then_the_newest() -> None:
    facts = [fact(0.8, 1, 1), fact(0.9, 2, 2), fact(0.8, 0, 3), fact(0.8, 1, 4), fact(1.0, 400, 5)]
    assert rank_facts(facts, 4, NOW) == [2, 3, 4, 1]
    assert rank_facts(facts, 0, NOW) == []


def test_a_state_has_bounds_and_the_reason_names_them() -> None:
    assert state_problem("k" * MAX_KEY_CHARS, "v" * MAX_VALUE_CHARS) == ""
    assert str(MAX_KEY_CHARS) in state_problem("k" * (MAX_KEY_CHARS + 1), "v")
    assert str(MAX_VALUE_CHARS) in state_problem("k", "v" * (MAX_VALUE_CHARS + 1))
    assert "needs a key" in state_problem(" ", "v")
