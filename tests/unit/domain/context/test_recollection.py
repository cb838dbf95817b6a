"""What an agent knows beside the messages, as layers of its prompt."""

from datetime import UTC, datetime, timedelta

from maestro.domain.context.composition import (
    FACTS,
    build_other_facts_layer,
    build_state_layer,
    build_sticky_facts_layer,
    build_summary_layer,
)
from maestro.domain.conversations.conversation import Compaction
from maestro.domain.llm.models import estimate_tokens
from maestro.domain.memory.memory import FactCategory, MemoryState, RecalledFact

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def fact(number: int, category: FactCategory = FactCategory.USER_PREFERENCE, text: str = "a fact") -> RecalledFact:
    return RecalledFact(number, category, f"{text} {number}")


def kept(key: str, value: str, minute: int = 0) -> MemoryState:
    return MemoryState(agent_id=1, key=key, value=value, updated_at=NOW + timedelta(minutes=minute))


def summed_up(day: int, text: str) -> Compaction:
    return Compaction(
        conversation_id=1,
        agent_id=1,
        summary=text,
        messages_before=20,
        messages_after=10,
        tokens_saved=1,
        created_at=NOW.replace(day=day),
    )


def test_sticky_facts_stand_apart_and_fifteen_others_are_told() -> None:
    best = [*(fact(number) for number in range(20)), fact(99, FactCategory.STICKY, "never forget")]
    assert [one.id for one in build_sticky_facts_layer(best, 10_000).facts] == [99]
    others = build_other_facts_layer(best, 10_000)
    assert [one.id for one in others.facts] == list(range(FACTS))
    assert others.layer.note == "15 of 15"


def test_the_best_are_chosen_and_told_in_the_order_they_were_learned() -> None:
    best_first = [fact(3), fact(1), fact(2)]
    one_line = estimate_tokens('- "a fact 1"') + 1
    told = build_other_facts_layer(best_first, estimate_tokens("What you remember:") + 1 + 2 * one_line)
    assert told.layer.text == 'What you remember:\n- "a fact 1"\n- "a fact 3"'
    assert told.layer.note == "2 of 3"


def test_facts_and_summaries_keep_to_their_budget() -> None:
    best = [fact(number, FactCategory.STICKY, "x" * 400) for number in range(100)]
    told = build_sticky_facts_layer(best, 1_000)
    assert 0 < len(told.facts) < 12
    assert told.layer.tokens <= 1_000
    gone = build_summary_layer([summed_up(day, f"{day} " * 2_000) for day in (9, 8, 7)], 1_333)
    assert gone.tokens <= 1_333
    assert gone.text.startswith("Summary of what was said before 2026-03-09:\n> 9 9")
    assert gone.note == "1 of 3"


def test_without_room_nothing_is_told() -> None:
    assert build_sticky_facts_layer([fact(1, FactCategory.STICKY)], 0).layer.text == ""
    assert build_other_facts_layer([fact(1)], 0).facts == ()
    assert build_state_layer([kept("topic", "tea")], 0).text == ""
    assert build_summary_layer([summed_up(9, "of day 9")], 0).text == ""


def test_the_last_three_summaries_are_told_the_newest_last() -> None:
    gone = build_summary_layer([summed_up(day, f"of day {day}") for day in (9, 8, 7, 6)], 10_000)
    assert gone.text.split("\n\n") == [
        f"Summary of what was said before 2026-03-0{day}:\n> of day {day}" for day in (7, 8, 9)
    ]


def test_state_is_told_by_key_and_where_not_all_fits_what_was_set_last() -> None:
    states = [kept("a", "first", 1), kept("b", "second", 3), kept("c", "third", 2)]
    heading = "What you noted, by key:"
    assert build_state_layer(states, 1_000).text == f'{heading}\n- "a": "first"\n- "b": "second"\n- "c": "third"'
    room = estimate_tokens(heading) + 1 + 2 * (estimate_tokens('- "b": "second"') + 1)
    assert build_state_layer(states, room).text == f'{heading}\n- "b": "second"\n- "c": "third"'
    assert build_state_layer(states, room).note == "2 of 3"
