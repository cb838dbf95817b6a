"""The prompt: layers in a cache-friendly order, each within its share of the budget."""

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
    cost,
    fitting,
    joined,
    sizes,
)
from maestro.domain.conversations.conversation import Compaction
from maestro.domain.llm.models import MESSAGE_OVERHEAD, cut
from maestro.domain.llm.prompts import ComposedTurn, Role
from maestro.domain.media import MAX_IMAGES
from maestro.domain.memory.memory import MAX_KEY_CHARS, MAX_VALUE_CHARS, FactCategory, MemoryState, RecalledFact
from maestro.domain.skills.skill import Skill
from maestro.domain.texts import FACT_CHARS, NAME_CHARS, quoted, quoted_lines

SUMMARIES = 3
FACTS = 15
"""How many facts are told beside the sticky ones."""
SHORTEST_SUMMARY = 40
"""Tokens, the heading included; with less room a summary says nothing."""

SHORTEST_ASKED = 200
"""Tokens of what is to be answered that are shown in any case."""


@dataclass(frozen=True)
class RecalledFacts:
    """The facts that a model hears, and how."""

    layer: Layer
    facts: tuple[RecalledFact, ...]


def sticky_facts(best_first: Sequence[RecalledFact], budget: int) -> RecalledFacts:
    """Return the sticky facts, as many as fit."""
    sticky = [fact for fact in best_first if fact.category is FactCategory.STICKY]
    return _recall(LayerName.STICKY_FACTS, "Always keep in mind:", sticky, budget)


def other_facts(best_first: Sequence[RecalledFact], budget: int) -> RecalledFacts:
    """Return up to fifteen of the best other facts, as many as fit (docs/decisions.md: prompt layers)."""
    others = [fact for fact in best_first if fact.category is not FactCategory.STICKY]
    return _recall(LayerName.FACTS, "What you remember:", others[:FACTS], budget)


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


def _recall(name: LayerName, heading: str, facts: Sequence[RecalledFact], budget: int) -> RecalledFacts:
    """Tell the first facts that fit, in the order they were learned: the order of their worth changes, theirs not.

    A text that stays the same from message to message is one that a provider can keep.
    """
    bullets = [_bullet(fact.content) for fact in facts]
    fits = len(fitting(bullets, budget - cost(heading)))
    told = sorted(zip(facts[:fits], bullets, strict=False), key=lambda one: one[0].id)
    layer = _listed(name, heading, [bullet for _, bullet in told], len(facts))
    return RecalledFacts(layer, tuple(fact for fact, _ in told))


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


@dataclass(frozen=True)
class PromptInput:
    """What a job is to answer: the turns, oldest first, what was said before, newest first, and who asks.

    ``summaries`` are of this conversation, newest first; ``note`` is what became of the tags of the last answer.
    """

    turns: tuple[HistoryEntry, ...]
    earlier: tuple[HistoryEntry, ...] = ()
    summaries: tuple[Compaction, ...] = ()
    user_name: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """What is to be answered, as one text."""
        return "\n".join(turn.content for turn in self.turns)


@dataclass(frozen=True)
class Knowledge:
    """What an agent knows beside who it is: ``facts`` are best first, ``skills`` those chosen for what is asked.

    ``addendum`` is what it is told of #maestro, empty for most.
    """

    skills: tuple[Skill, ...] = ()
    facts: Sequence[RecalledFact] = ()
    states: Sequence[MemoryState] = ()
    addendum: str = ""


@dataclass(frozen=True)
class Composition:
    """A prompt, what each of its layers takes, and the facts that it tells."""

    messages: tuple[ComposedTurn, ...]
    layers: tuple[LayerSize, ...]
    facts: tuple[RecalledFact, ...]

    @property
    def tokens(self) -> int:
        """What the whole takes."""
        return MESSAGE_OVERHEAD + sum(layer.tokens for layer in self.layers)


def compose(own: Persona, matter: PromptInput, knowledge: Knowledge, today: date, budget: int) -> Composition:
    """Return the prompt: one leading system message, what was said before, and what is to be answered.

    It takes no more than the budget, as long as what is never cut does: who the agent is, its own prompt and what it
    is told of the chat included, and ``SHORTEST_ASKED`` tokens of what is asked. The rest has its room in this order:
    sticky facts a quarter of what is left; what is asked all it needs, with its middle left out where it does not fit;
    skills a third, each whole or not at all; other facts a quarter; state a quarter; summaries a third, the newest one
    first; earlier messages the rest, the newest first.

    See docs/decisions.md: prompt layers.
    """
    now = f"Today is {today.isoformat()}." + _person(matter.user_name)
    moment = Layer(LayerName.MOMENT, f"{now}\n\n{matter.note}" if matter.note else now)
    chat = Layer(LayerName.CHAT, knowledge.addendum)
    room = TokenRoom(budget - MESSAGE_OVERHEAD - own.tokens)
    for layer in (moment, chat):
        room.take(layer)
    sticky = _take(room, sticky_facts(knowledge.facts, room.share(4)))
    shown = render_input(matter.turns, max(room.left, SHORTEST_ASKED))
    room.left -= sum(turn.tokens for turn in shown)
    skills = room.take(_skills(knowledge.skills, room.share(3)))
    others = _take(room, other_facts(knowledge.facts, room.share(4)))
    states = room.take(state(knowledge.states, room.share(4)))
    gone = room.take(summaries(matter.summaries, room.share(3)))
    images = MAX_IMAGES - sum(len(turn.turn.images) for turn in shown)
    earlier = select_history(matter.earlier, room.left, images)
    changing = (skills, sticky.layer, others.layer, states, moment, gone, chat)
    return Composition(
        messages=(_system(own, changing), *(turn.turn for turn in (*earlier, *shown))),
        layers=(
            *own.sizes,
            *sizes(changing),
            _turns(LayerName.HISTORY, earlier, f"{len(earlier)} of {len(matter.earlier)} messages"),
            _turns(LayerName.ASKED, shown, _cut(shown)),
        ),
        facts=(*sticky.facts, *others.facts),
    )


def _system(own: Persona, changing: Sequence[Layer]) -> ComposedTurn:
    """Return the system message, which says where the beginning ends that is the same for every message."""
    content = SEPARATOR.join((own.text, joined(changing)))
    return ComposedTurn(role=Role.SYSTEM, content=content, stable=len(own.text))


def _take(room: TokenRoom, told: RecalledFacts) -> RecalledFacts:
    room.take(told.layer)
    return told


def _skills(skills: Sequence[Skill], budget: int) -> Layer:
    """Return the instructions of the skills that fit, the best first; half a skill would mislead."""
    chosen: list[tuple[str, str]] = []
    for skill in skills:
        text = f"Instructions that may help with what is asked now ({quoted(skill.name, NAME_CHARS)}):\n{skill.body}"
        tokens = Layer(LayerName.SKILLS, text).tokens
        if tokens <= budget:
            chosen.append((skill.slug, text))
            budget -= tokens
    left_out = [skill.slug for skill in skills if skill.slug not in dict(chosen)]
    note = ", ".join([*(slug for slug, _ in chosen), *(f"{slug} left out" for slug in left_out)])
    return Layer(LayerName.SKILLS, "\n\n".join(text for _, text in chosen), note)


def _turns(name: LayerName, shown: Sequence[RenderedEntry], note: str) -> LayerSize:
    characters = sum(turn.characters for turn in shown)
    return LayerSize(name=name, characters=characters, tokens=sum(turn.tokens for turn in shown), note=note)


def _cut(shown: Sequence[RenderedEntry]) -> str:
    left_out = sum(turn.left_out for turn in shown)
    return f"{left_out} characters left out" if left_out else ""


def _person(user_name: str) -> str:
    return f" You are talking with a person called {quoted(user_name, NAME_CHARS)}." if user_name.strip() else ""
