"""What an agent's answer wants remembered, read from its tags (decisions 7 and 8)."""

from maestro.domain.facts import Fact
from maestro.domain.memory import MAX_FACT_CHARS, FactCategory
from maestro.domain.tags import Tag


def fact_of(tag: Tag) -> Fact | str:
    """Return the fact that a memory tag holds, in one line, or why there is none, in a sentence."""
    name = tag.key.casefold().replace("-", "_")
    category = next((category for category in FactCategory if category == name), None)
    if category is None:
        return f"{tag.key!r} is no category; write one of {', '.join(FactCategory)}."
    content = " ".join(tag.body.split())
    if not content:
        return "There was nothing to remember."
    return Fact(category, content[:MAX_FACT_CHARS])
