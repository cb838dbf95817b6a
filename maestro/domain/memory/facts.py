"""A strict parser for facts: the memory tags in which a model writes what an agent should remember.

See docs/decisions.md: tags, duplicate facts.
"""

import re
from typing import NamedTuple

from rapidfuzz import fuzz

from maestro.domain.memory.memory import MAX_FACT_CHARS, FactCategory
from maestro.domain.tags.grammar import Tag, TagName
from maestro.domain.texts import storable

SPELT_ALIKE = 80.0
"""The least similarity (rapidfuzz ``ratio``, 0 to 100) of words that count as equal: preference, preferences."""
_WORD_BREAK = re.compile(r"[\W_]+")
_TAG = rf"\[MEMORY:([\w-]+)\]((?:(?!\[/?(?:{'|'.join(TagName)})).)+)\[/MEMORY\]"
_TAGS = re.compile(_TAG, re.IGNORECASE)
_LINE = re.compile(rf"\s*(?:[-*]\s+|\d+[.)]\s+)?(?:{_TAG}\s*)+", re.IGNORECASE)


class Fact(NamedTuple):
    """A fact to remember, as one line of text, with its category."""

    category: FactCategory
    content: str


def parse_facts(answer: str) -> tuple[Fact, ...]:
    """Return the facts of an answer without repeats.

    Only a line that consists of complete memory tags counts. A model that repeats its input thus creates no facts,
    because every line of a user's text in a prompt is quoted. Empty tags and tags that contain another tag are skipped.
    """
    facts: dict[tuple[FactCategory, str], Fact] = {}
    for line in filter(_LINE.fullmatch, answer.splitlines()):
        for name, text in _TAGS.findall(line):
            category, content = nearest_category(name), fact_line(text)
            if content:
                facts.setdefault((category, repeat_key(content)), Fact(category, content))
    return tuple(facts.values())


def fact_line(text: str) -> str:
    """Return the text of a fact as it is stored: one line, at most 500 characters."""
    return storable(" ".join(text.split()))[:MAX_FACT_CHARS].rstrip()


def repeat_key(content: str) -> str:
    """Return the text of a fact without case, final stop and repeated blanks, to find exact repeats."""
    return " ".join(content.casefold().split()).rstrip(".!")


def nearest_category(name: str) -> FactCategory:
    """Return the category nearest to a name that a model wrote, so that no fact is lost for an unknown name.

    The nearest category is the one that shares the most words with the name (small spelling differences count as
    equal), or ``learned_pattern`` if none shares a word.
    """
    written = _WORD_BREAK.split(name.casefold())

    def shared_words(category: FactCategory) -> int:
        return sum(any(fuzz.ratio(word, other) >= SPELT_ALIKE for other in written) for word in category.split("_"))

    nearest = max(FactCategory, key=shared_words)
    return nearest if shared_words(nearest) else FactCategory.LEARNED_PATTERN


def read_fact(tag: Tag) -> Fact | str:
    """Return the fact of a memory tag, or a sentence that says why the tag has none."""
    if not tag.complete:
        return f"{tag.key!r} is no category; write one of {', '.join(FactCategory)}."
    content = fact_line(tag.body)
    category = nearest_category(" ".join((tag.key, *tag.options)))
    return Fact(category, content) if content else "There was nothing to remember."
