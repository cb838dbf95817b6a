"""What an agent knows beside the messages, as layers of its prompt: facts, state, and summaries of what went before."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from maestro.domain.context.layers import SEPARATOR, Layer, LayerName, cost, fitting
from maestro.domain.conversations.compaction import Compaction
from maestro.domain.llm.tokens import cut
from maestro.domain.memory.memory import MAX_KEY_CHARS, MAX_VALUE_CHARS, FactCategory, MemoryState, Remembered
from maestro.domain.quoting import FACT_CHARS, quoted, quoted_lines

SUMMARIES = 3
FACTS = 15
"""How many facts are told beside the sticky ones."""
SHORTEST_SUMMARY = 40
"""Tokens, the heading included; with less room a summary says nothing."""


@dataclass(frozen=True)
class ToldFacts:
    """The facts that a model hears, and how."""

    layer: Layer
    facts: tuple[Remembered, ...]


def sticky_facts(best_first: Sequence[Remembered], budget: int) -> ToldFacts:
    """Return the sticky facts, as many as fit."""
    sticky = [fact for fact in best_first if fact.category is FactCategory.STICKY]
    return _told(LayerName.STICKY_FACTS, "Always keep in mind:", sticky, budget)


def other_facts(best_first: Sequence[Remembered], budget: int) -> ToldFacts:
    """Return up to fifteen of the best other facts, as many as fit (docs/decisions.md: prompt layers)."""
    others = [fact for fact in best_first if fact.category is not FactCategory.STICKY]
    return _told(LayerName.FACTS, "What you remember:", others[:FACTS], budget)


def state(states: Sequence[MemoryState], budget: int) -> Layer:
    """Return what the agent keeps under keys, by key; where not all fits, what was set last."""
    heading = "What you noted, by key:"
    newest_first = sorted(states, key=lambda one: (one.updated_at, one.key), reverse=True)
    lines = {one.key: f"- {quoted(one.key, MAX_KEY_CHARS)}: {quoted(one.value, MAX_VALUE_CHARS)}" for one in states}
    chosen = fitting([lines[one.key] for one in newest_first], budget - cost(heading))
    told = sorted(one.key for one in newest_first[: len(chosen)])
    return _listed(LayerName.STATE, heading, [lines[key] for key in told], len(states))


def summaries(newest_first: Sequence[Compaction], budget: int) -> Layer:
    """Return the summaries of what went before, newest last.

    The newest always has a place, cut if need be; an older one only where it fits.
    """
    chosen: list[str] = []
    for compaction in newest_first[:SUMMARIES]:
        text = _dated(compaction)
        if (chosen and cost(text) > budget) or budget < SHORTEST_SUMMARY:
            break
        chosen.append(cut(text, budget - 1))
        budget -= cost(chosen[-1])
    note = _note(len(chosen), len(newest_first[:SUMMARIES]))
    return Layer(LayerName.SUMMARIES, SEPARATOR.join(reversed(chosen)), note)


def _told(name: LayerName, heading: str, facts: Sequence[Remembered], budget: int) -> ToldFacts:
    """Tell the first facts that fit, in the order they were learned: the order of their worth changes, theirs not.

    A text that stays the same from message to message is one that a provider can keep.
    """
    bullets = [_bullet(fact.content) for fact in facts]
    fits = len(fitting(bullets, budget - cost(heading)))
    told = sorted(zip(facts[:fits], bullets, strict=False), key=lambda one: one[0].id)
    layer = _listed(name, heading, [bullet for _, bullet in told], len(facts))
    return ToldFacts(layer, tuple(fact for fact, _ in told))


@lru_cache(maxsize=5_000)
def _bullet(fact: str) -> str:
    """Return the line that tells a fact; most are told with message after message."""
    return f"- {quoted(fact, FACT_CHARS)}"


def _listed(name: LayerName, heading: str, lines: Sequence[str], there_are: int) -> Layer:
    text = "\n".join([heading, *lines]) if lines else ""
    return Layer(name, text, _note(len(lines), there_are))


def _note(told: int, there_are: int) -> str:
    return f"{told} of {there_are}" if there_are else ""


def _dated(compaction: Compaction) -> str:
    heading = f"Summary of what was said before {compaction.created_at.date().isoformat()}:"
    return f"{heading}\n{quoted_lines(compaction.summary)}"
