"""The composition of a prompt: layers (sections) in a cache-friendly order, each within its token budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from maestro.domain.context.history import HistoryEntry, RenderedEntry, render_input, select_history
from maestro.domain.context.layers import (
    SEPARATOR,
    Layer,
    LayerName,
    LayerSize,
    Persona,
    TokenRoom,
    join_layers,
    layer_sizes,
    take_fitting,
    tokens_with_separator,
)
from maestro.domain.conversations.conversation import Compaction
from maestro.domain.llm.models import MESSAGE_OVERHEAD, cut_to_tokens
from maestro.domain.llm.prompts import ComposedTurn, Role
from maestro.domain.media import MAX_IMAGES
from maestro.domain.memory.memory import MAX_KEY_CHARS, MAX_VALUE_CHARS, FactCategory, MemoryState, RecalledFact
from maestro.domain.skills.skill import Skill
from maestro.domain.texts import FACT_CHARS, NAME_CHARS, quote_text, quoted_lines

SUMMARIES = 3
FACTS = 15
"""The most facts in a prompt besides the sticky facts, which every prompt contains."""
SHORTEST_SUMMARY = 40
"""The fewest tokens of a summary, heading included; a shorter summary would be useless."""

SHORTEST_ASKED = 200
"""The fewest tokens that the messages to answer get, even if the budget is used up."""


@dataclass(frozen=True)
class RecalledFacts:
    """A layer (section) with facts in a prompt, and the facts that it contains."""

    layer: Layer
    facts: tuple[RecalledFact, ...]


def build_sticky_facts_layer(best_first: Sequence[RecalledFact], budget: int) -> RecalledFacts:
    """Return the layer of sticky facts, with as many facts as fit into ``budget`` tokens."""
    sticky = [fact for fact in best_first if fact.category is FactCategory.STICKY]
    return _facts_layer(LayerName.STICKY_FACTS, "Always keep in mind:", sticky, budget)


def build_other_facts_layer(best_first: Sequence[RecalledFact], budget: int) -> RecalledFacts:
    """Return the layer of the facts that are not sticky: the best ``FACTS``, or as many as fit into ``budget``."""
    others = [fact for fact in best_first if fact.category is not FactCategory.STICKY]
    return _facts_layer(LayerName.FACTS, "What you remember:", others[:FACTS], budget)


def build_state_layer(states: Sequence[MemoryState], budget: int) -> Layer:
    """Return the layer of the agent's state (its keys and values), sorted by key.

    If not all entries fit into ``budget`` tokens, those that were set last are chosen.
    """
    heading = "What you noted, by key:"
    newest_first = sorted(states, key=lambda entry: (entry.updated_at, entry.key), reverse=True)
    lines = [
        f"- {quote_text(entry.key, MAX_KEY_CHARS)}: {quote_text(entry.value, MAX_VALUE_CHARS)}"
        for entry in newest_first
    ]
    chosen = take_fitting(lines, budget - tokens_with_separator(heading))
    by_key = sorted(zip((entry.key for entry in newest_first), chosen, strict=False))
    return _list_layer(LayerName.STATE, heading, [line for _, line in by_key], len(states))


def build_summary_layer(newest_first: Sequence[Compaction], budget: int) -> Layer:
    """Return the layer of the conversation's summaries, newest last.

    The newest summary is always included, cut if necessary, unless the budget is below ``SHORTEST_SUMMARY``. An older
    summary is only included if it fits whole.
    """
    chosen: list[str] = []
    for compaction in newest_first[:SUMMARIES]:
        heading = f"Summary of what was said before {compaction.created_at.date().isoformat()}:"
        text = f"{heading}\n{quoted_lines(compaction.summary)}"
        if (chosen and tokens_with_separator(text) > budget) or budget < SHORTEST_SUMMARY:
            break
        chosen.append(cut_to_tokens(text, budget - 1))
        budget -= tokens_with_separator(chosen[-1])
    note = _count_note(len(chosen), len(newest_first[:SUMMARIES]))
    return Layer(LayerName.SUMMARIES, SEPARATOR.join(reversed(chosen)), note)


def _facts_layer(name: LayerName, heading: str, facts: Sequence[RecalledFact], budget: int) -> RecalledFacts:
    """Return a layer with the best facts that fit, in the order in which the agent learned them.

    The ranking of facts changes from message to message, but this order does not: a provider can cache a layer that
    stays the same.
    """
    bullets = [_fact_line(fact.content) for fact in facts]
    fits = len(take_fitting(bullets, budget - tokens_with_separator(heading)))
    chosen = sorted(zip(facts[:fits], bullets, strict=False), key=lambda pair: pair[0].id)
    layer = _list_layer(name, heading, [bullet for _, bullet in chosen], len(facts))
    return RecalledFacts(layer, tuple(fact for fact, _ in chosen))


@lru_cache(maxsize=5_000)
def _fact_line(fact: str) -> str:
    """Return the line of a fact; cached, because most facts occur in message after message."""
    return f"- {quote_text(fact, FACT_CHARS)}"


def _list_layer(name: LayerName, heading: str, lines: Sequence[str], available: int) -> Layer:
    text = "\n".join([heading, *lines]) if lines else ""
    return Layer(name, text, _count_note(len(lines), available))


def _count_note(included: int, available: int) -> str:
    return f"{included} of {available}" if available else ""


@dataclass(frozen=True)
class PromptInput:
    """The input of a prompt: the messages to answer, oldest first, and the earlier messages, newest first.

    ``summaries`` are those of the conversation, newest first. ``user_name`` is the name of the asking user. ``note``
    reports the outcomes of the tags in the last answer.
    """

    turns: tuple[HistoryEntry, ...]
    earlier: tuple[HistoryEntry, ...] = ()
    summaries: tuple[Compaction, ...] = ()
    user_name: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """The messages to answer, as one text."""
        return "\n".join(turn.content for turn in self.turns)


@dataclass(frozen=True)
class Knowledge:
    """The knowledge of an agent for one prompt: skills, facts and state.

    ``skills`` are those chosen for the messages to answer, ``facts`` are sorted best first. ``addendum`` is the text
    about the agent chat #maestro, empty for most agents.
    """

    skills: tuple[Skill, ...] = ()
    facts: Sequence[RecalledFact] = ()
    states: Sequence[MemoryState] = ()
    addendum: str = ""


@dataclass(frozen=True)
class Composition:
    """A composed prompt, the sizes of its layers (sections), and the facts that it contains."""

    messages: tuple[ComposedTurn, ...]
    layers: tuple[LayerSize, ...]
    facts: tuple[RecalledFact, ...]

    @property
    def tokens(self) -> int:
        return MESSAGE_OVERHEAD + sum(layer.tokens for layer in self.layers)


def compose_prompt(
    persona: Persona, prompt: PromptInput, knowledge: Knowledge, today: date, budget: int
) -> Composition:
    """Return the prompt: one leading system message, earlier messages, and the messages to answer.

    The prompt has at most ``budget`` tokens, unless the parts that are never cut need more. These are the persona with
    the agent's own prompt, the layers ``moment`` (date, user and note) and ``chat``, and ``SHORTEST_ASKED`` tokens of
    the messages to answer. The other layers take their tokens in this order:

    1. Sticky facts: a quarter of the remaining tokens. 2. The messages to answer: all they need, with the middle left
    out if they do not fit. 3. Skills: a third, each skill whole or not at all. 4. Other facts: a quarter. 5. State: a
    quarter. 6. Summaries: a third, the newest first. 7. Earlier messages: the rest, the newest first. See
    docs/decisions.md: prompt layers.
    """
    room = TokenRoom(budget - MESSAGE_OVERHEAD - persona.tokens)
    moment = room.subtract_layer(_moment_layer(prompt, today))
    chat = room.subtract_layer(Layer(LayerName.CHAT, knowledge.addendum))
    sticky = _subtract_facts(room, build_sticky_facts_layer(knowledge.facts, room.divide_by(4)))
    rendered = render_input(prompt.turns, max(room.remaining, SHORTEST_ASKED))
    room.remaining -= sum(turn.tokens for turn in rendered)
    skills = room.subtract_layer(_skill_layer(knowledge.skills, room.divide_by(3)))
    others = _subtract_facts(room, build_other_facts_layer(knowledge.facts, room.divide_by(4)))
    states = room.subtract_layer(build_state_layer(knowledge.states, room.divide_by(4)))
    summary_layer = room.subtract_layer(build_summary_layer(prompt.summaries, room.divide_by(3)))
    images = MAX_IMAGES - sum(len(turn.turn.images) for turn in rendered)
    earlier = select_history(prompt.earlier, room.remaining, images)
    changing = (skills, sticky.layer, others.layer, states, moment, summary_layer, chat)
    content = SEPARATOR.join((persona.text, join_layers(changing)))  # Only the persona is the same in all prompts.
    system = ComposedTurn(role=Role.SYSTEM, content=content, stable=len(persona.text))
    left_out = sum(entry.left_out for entry in rendered)
    return Composition(
        messages=(system, *(entry.turn for entry in (*earlier, *rendered))),
        layers=(
            *persona.sizes,
            *layer_sizes(changing),
            _messages_size(LayerName.HISTORY, earlier, f"{len(earlier)} of {len(prompt.earlier)} messages"),
            _messages_size(LayerName.ASKED, rendered, f"{left_out} characters left out" if left_out else ""),
        ),
        facts=(*sticky.facts, *others.facts),
    )


def _moment_layer(prompt: PromptInput, today: date) -> Layer:
    text = f"Today is {today.isoformat()}."
    if prompt.user_name.strip():
        text += f" You are talking with a person called {quote_text(prompt.user_name, NAME_CHARS)}."
    return Layer(LayerName.MOMENT, f"{text}\n\n{prompt.note}" if prompt.note else text)


def _subtract_facts(room: TokenRoom, facts: RecalledFacts) -> RecalledFacts:
    room.subtract_layer(facts.layer)
    return facts


def _skill_layer(skills: Sequence[Skill], budget: int) -> Layer:
    """Return the layer of the skills that fit whole, best first; half a skill would mislead the model."""
    chosen: list[tuple[str, str]] = []
    for skill in skills:
        text = (
            f"Instructions that may help with what is asked now ({quote_text(skill.name, NAME_CHARS)}):\n{skill.body}"
        )
        tokens = Layer(LayerName.SKILLS, text).tokens
        if tokens <= budget:
            chosen.append((skill.slug, text))
            budget -= tokens
    left_out = (f"{skill.slug} left out" for skill in skills if skill.slug not in dict(chosen))
    note = ", ".join([*(slug for slug, _ in chosen), *left_out])
    return Layer(LayerName.SKILLS, "\n\n".join(text for _, text in chosen), note)


def _messages_size(name: LayerName, rendered: Sequence[RenderedEntry], note: str) -> LayerSize:
    characters = sum(entry.characters for entry in rendered)
    return LayerSize(name=name, characters=characters, tokens=sum(entry.tokens for entry in rendered), note=note)
