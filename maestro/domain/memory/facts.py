"""Facts in an answer: a strict reader of the tags in which a model writes what is worth remembering.

See docs/decisions.md: tags, duplicate facts.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rapidfuzz import fuzz

from maestro.domain.memory.memory import MAX_FACT_CHARS, FactCategory
from maestro.domain.tags.grammar import Tag, TagName
from maestro.domain.texts import storable

SPELT_ALIKE = 80.0
"""How similar two words must be to be one (rapidfuzz ``ratio``, 0 to 100): preference and preferences."""
_WORD_BREAK = re.compile(r"[\W_]+")
_TAG = rf"\[MEMORY:([\w-]+)\]((?:(?!\[/?(?:{'|'.join(TagName)})).)+)\[/MEMORY\]"
_TAGS = re.compile(_TAG, re.IGNORECASE)
_LINE = re.compile(rf"\s*(?:[-*]\s+|\d+[.)]\s+)?(?:{_TAG}\s*)+", re.IGNORECASE)


class Fact(NamedTuple):
    """One thing to remember, in one line."""

    category: FactCategory
    content: str


def parse_facts(answer: str) -> tuple[Fact, ...]:
    """Return the facts of an answer, each once.

    Only a line of nothing but whole tags counts, so that a model which repeats what it was given to read invents no
    facts: there, every line of a person's text is quoted. An empty text is left out, and one with another tag in it.
    """
    found: dict[tuple[FactCategory, str], Fact] = {}
    for line in answer.splitlines():
        if not _LINE.fullmatch(line):
            continue
        for category, text in _TAGS.findall(line):
            content = one_line(text)
            known = category_of(category)
            if content:
                found.setdefault((known, normalised(content)), Fact(known, content))
    return tuple(found.values())


def one_line(text: str) -> str:
    """Return a fact as it is kept: one line, at most 500 characters."""
    return storable(" ".join(text.split()))[:MAX_FACT_CHARS].rstrip()


def normalised(content: str) -> str:
    """Return what two facts have in common that say the same in the same words: no case, no stop, single blanks."""
    return " ".join(content.casefold().split()).rstrip(".!")


def category_of(name: str) -> FactCategory:
    """Return the category that a model means by a name of its own, so that no fact is lost for it.

    It is the one with which the name shares the most words, in about the same spelling, and ``learned_pattern`` where
    it shares none.
    """
    written = _WORD_BREAK.split(name.casefold())
    shared = {category: sum(_is_shared(word, written) for word in category.split("_")) for category in FactCategory}
    nearest = max(shared, key=shared.__getitem__)
    return nearest if shared[nearest] else FactCategory.LEARNED_PATTERN


def _is_shared(word: str, written: Sequence[str]) -> bool:
    return any(fuzz.ratio(word, other) >= SPELT_ALIKE for other in written)


def fact_of(tag: Tag) -> Fact | str:
    """Return the fact that a memory tag holds, in one line, or why there is none, in a sentence."""
    if not tag.complete:
        return f"{tag.key!r} is no category; write one of {', '.join(FactCategory)}."
    content = one_line(tag.body)
    category = category_of(" ".join((tag.key, *tag.options)))
    return Fact(category, content) if content else "There was nothing to remember."
