"""What an agent's answer wants remembered, read from its tags (docs/decisions.md: tags, duplicate facts)."""

from maestro.domain.memory.facts import Fact, category_of, one_line
from maestro.domain.memory.memory import FactCategory
from maestro.domain.tags.grammar import Tag


def fact_of(tag: Tag) -> Fact | str:
    """Return the fact that a memory tag holds, in one line, or why there is none, in a sentence."""
    if not tag.complete:
        return f"{tag.key!r} is no category; write one of {', '.join(FactCategory)}."
    content = one_line(tag.body)
    category = category_of(" ".join((tag.key, *tag.options)))
    return Fact(category, content) if content else "There was nothing to remember."
