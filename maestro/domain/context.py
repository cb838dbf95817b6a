"""The prompt: layers in a cache-friendly order, history newest first within the budget (specification 003, step 6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from maestro.domain.agents import Agent
from maestro.domain.compaction import Compaction
from maestro.domain.conversations import Message
from maestro.domain.media import MAX_IMAGES, MediaFile, prompt_text
from maestro.domain.memory import FactCategory, MemoryFact
from maestro.domain.prompts import PromptMessage, Role
from maestro.domain.quoting import FACT_CHARS, NAME_CHARS, quoted, quoted_lines
from maestro.domain.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, cut, estimate

HISTORY_ROWS = 500
SUMMARIES = 3
FACTS = 15
"""How many facts are told beside the sticky ones."""
SHORTEST_SUMMARY = 40
"""Tokens, the heading included; with less room a summary says nothing."""

Files = Mapping[int, tuple[MediaFile, ...]]
"""The files of messages by the id of their inbox row."""


@dataclass(frozen=True)
class Recollection:
    """What an agent knows beside the messages: facts, and summaries of what went before as texts, newest last."""

    facts: tuple[MemoryFact, ...] = ()
    summaries: tuple[str, ...] = ()


def recollect(best_first: Sequence[MemoryFact], newest_first: Sequence[Compaction], budget: int) -> Recollection:
    """Choose what to tell the model of the past: facts take at most a quarter of the budget, summaries a third.

    Sticky facts come first, then up to fifteen others (decision 6). The newest summary always has a place, cut if
    need be; an older one only where it fits.
    """
    sticky = [fact for fact in best_first if fact.category is FactCategory.STICKY]
    others = [fact for fact in best_first if fact.category is not FactCategory.STICKY]
    return Recollection(
        facts=_fitting_facts([*sticky, *others[:FACTS]], budget // 4),
        summaries=_fitting_summaries(newest_first[:SUMMARIES], budget // 3),
    )


def system_prompt(agent: Agent, today: date, user_name: str, past: Recollection) -> str:
    """Compose the one leading system message: what never changes first, what every message changes last.

    What people chose or said, such as their names, what was learned of them and summaries, is quoted: it informs the
    model and cannot instruct it (decision 6).
    """
    layers = [
        f"You are {agent.name}, an agent that people talk to through Maestro. Speak as {agent.name}.",
        agent.description and f"Your purpose: {agent.description}",
        agent.system_prompt,
        _listed("Always keep in mind:", [fact for fact in past.facts if fact.category is FactCategory.STICKY]),
        _listed("What you remember:", [fact for fact in past.facts if fact.category is not FactCategory.STICKY]),
        f"Today is {today.isoformat()}." + _person(user_name),
        *past.summaries,
    ]
    return "\n\n".join(layer for layer in layers if layer)


def select_history(newest_first: Sequence[Message], files: Files, budget: int) -> tuple[PromptMessage, ...]:
    """Return the messages that fit, oldest first; the newest one, which is being answered, always stays.

    The first message that does not fit ends the selection, so that the history has no holes. It begins with what a
    person said: an answer whose question is gone says little, and some providers refuse a history that begins with
    it. Images go along newest first, at most ten in all and only where they fit; every other file is named in the text.
    """
    chosen: list[PromptMessage] = []
    left, images = budget, MAX_IMAGES
    for message in newest_first:
        turn, cost = _turn(message, files.get(message.inbox_id or 0, ()), left, images)
        left -= cost
        if chosen and left < 0:
            break
        images -= len(turn.images)
        chosen.append(turn)
    while len(chosen) > 1 and chosen[-1].role is Role.ASSISTANT:
        chosen.pop()
    return tuple(reversed(chosen))


def compose(system: str, history: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Return the prompt: exactly one leading system message, then the history."""
    return (PromptMessage(role=Role.SYSTEM, content=system), *history)


def system_cost(system: str) -> int:
    """Return the tokens of the system message."""
    return MESSAGE_OVERHEAD + estimate(system)


def _turn(message: Message, files: Sequence[MediaFile], room: int, images: int) -> tuple[PromptMessage, int]:
    """Return a message as the model will see it, and its tokens."""
    if not files:
        return (
            PromptMessage(role=message.role, content=message.content, message_id=message.id),
            MESSAGE_OVERHEAD + message.token_estimate,
        )
    cost = MESSAGE_OVERHEAD + estimate(prompt_text(message.content, files))
    affordable = max(0, min(images, (room - cost) // IMAGE_TOKENS))
    shown = [file for file in files if file.is_picture][:affordable]
    text = prompt_text(message.content, files, {file.seq for file in shown})
    turn = PromptMessage(
        role=message.role,
        content=text,
        images=tuple(file.image for file in shown),
        # Text that is not the stored message's own is kept with the prompt.
        message_id=message.id if text == message.content else None,
    )
    return turn, MESSAGE_OVERHEAD + estimate(text) + IMAGE_TOKENS * len(shown)


def _fitting_facts(facts: Sequence[MemoryFact], budget: int) -> tuple[MemoryFact, ...]:
    chosen: list[MemoryFact] = []
    for fact in facts:
        budget -= estimate(_bullet(fact)) + 1
        if budget < 0:
            break
        chosen.append(fact)
    return tuple(chosen)


def _fitting_summaries(newest_first: Sequence[Compaction], budget: int) -> tuple[str, ...]:
    chosen: list[str] = []
    for compaction in newest_first:
        if (chosen and estimate(_dated(compaction)) > budget) or budget < SHORTEST_SUMMARY:
            break
        chosen.append(cut(_dated(compaction), budget))
        budget -= estimate(chosen[-1])
    return tuple(reversed(chosen))


def _listed(heading: str, facts: Sequence[MemoryFact]) -> str:
    return "\n".join([heading, *map(_bullet, facts)]) if facts else ""


def _bullet(fact: MemoryFact) -> str:
    return f"- {quoted(fact.content, FACT_CHARS)}"


def _dated(compaction: Compaction) -> str:
    heading = f"Summary of what was said before {compaction.created_at.date().isoformat()}:"
    return f"{heading}\n{quoted_lines(compaction.summary)}"


def _person(user_name: str) -> str:
    return f" You are talking with a person called {quoted(user_name, NAME_CHARS)}." if user_name.strip() else ""
