"""What a model found worth remembering: a strict reader of the tags it was told to write (decision 7)."""

import re
from typing import NamedTuple

from maestro.domain.memory.memory import MAX_FACT_CHARS, FactCategory
from maestro.domain.texts import storable

_TAG = r"\[MEMORY:([\w-]+)\]((?:(?!\[/?MEMORY).)+)\[/MEMORY\]"
_TAGS = re.compile(_TAG, re.IGNORECASE)
_LINE = re.compile(rf"\s*(?:[-*]\s+|\d+[.)]\s+)?(?:{_TAG}\s*)+", re.IGNORECASE)


class Fact(NamedTuple):
    """One thing to remember, in one line."""

    category: FactCategory
    content: str


def parse_facts(answer: str) -> tuple[Fact, ...]:
    """Return the facts of an answer, each once.

    Only a line of nothing but whole tags counts, so that a model which repeats what it was given to read invents no
    facts: there, every line of a person's text is quoted. An unknown category and an empty text are left out.
    """
    found: dict[tuple[FactCategory, str], Fact] = {}
    for line in answer.splitlines():
        if not _LINE.fullmatch(line):
            continue
        for category, text in _TAGS.findall(line):
            content = one_line(text)
            known = category_of(category)
            if known is not None and content:
                found.setdefault((known, normalised(content)), Fact(known, content))
    return tuple(found.values())


def one_line(text: str) -> str:
    """Return a fact as it is kept: one line, at most 500 characters."""
    return storable(" ".join(text.split()))[:MAX_FACT_CHARS].rstrip()


def normalised(content: str) -> str:
    """Return what two facts have in common that say the same in the same words: no case, no stop, single blanks."""
    return " ".join(content.casefold().split()).rstrip(".!")


def category_of(name: str) -> FactCategory | None:
    """Return the category of this name, in any case and with hyphens for underscores; None when there is none."""
    word = name.casefold().replace("-", "_")
    return next((category for category in FactCategory if category == word), None)
