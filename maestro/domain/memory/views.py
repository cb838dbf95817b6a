"""Views and changes of an agent's memory for operators, used by the API and the command line."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator
from pydantic import Field as ValueField

from maestro.domain.columns import LARGEST
from maestro.domain.memory.memory import MAX_FACT_CHARS, MAX_VALUE_CHARS, Fact, FactCategory
from maestro.domain.redaction import Redact, redact_value
from maestro.domain.texts import storable
from maestro.domain.values import Value, View

STATES = 1000
"""The most states in a page."""


def _checked_fact(text: str) -> str:
    text = " ".join(storable(text).split())
    if not text:
        raise ValueError("the fact is empty; write what the agent is to remember")
    if len(text) > MAX_FACT_CHARS:
        raise ValueError(
            f"the fact has {len(text)} characters, at most {MAX_FACT_CHARS} are kept; shorten or divide it"
        )
    return text


FactText = Annotated[str, AfterValidator(_checked_fact)]
Confidence = Annotated[float, ValueField(ge=0, le=1)]
Place = Annotated[str, ValueField(max_length=2_000)]


class FactView(View):
    """A fact; ``place`` is the key of the conversation to which it is limited, empty for all conversations.

    ``accessCount`` counts its uses in prompts, at most one an hour; ``lastAccessed`` is the time of the last counted
    use or of the last repeat.
    """

    id: int
    category: FactCategory
    content: str
    place: str
    confidence: float
    source_conversation_id: int | None
    created_at: datetime
    last_accessed: datetime | None
    access_count: int


class StateView(View):
    """A value stored under a key; ``place`` is the key of a conversation, as in ``FactView``."""

    key: str
    value: str
    place: str
    updated_at: datetime


class MemoryPage(View):
    """A page of facts, newest first or best match first, and the agent's states by key.

    ``next`` is the cursor of the next page of facts, null on the last page and for a search, which returns only the
    best matches.
    """

    items: tuple[FactView, ...]
    states: tuple[StateView, ...]
    next: str | None


class FactFilter(Value):
    """A filter for facts; ``q`` is a search text, ``place`` also includes facts without a place.

    ``sticky`` selects sticky or other facts, ``source`` the facts learned in the conversation with this id.
    """

    q: str | None = None
    category: FactCategory | None = ValueField(default=None, description="the topic; a sticky fact is in every prompt")
    place: str | None = ValueField(default=None, description="only facts that the conversation with this key recalls")
    sticky: bool | None = None
    source: int | None = ValueField(default=None, ge=1, le=LARGEST)


class NewFact(View):
    """A fact that an operator enters; its confidence is 1."""

    content: FactText
    category: FactCategory = ValueField(default=FactCategory.USER_PREFERENCE, description="the topic of the fact")
    place: Place = ValueField(
        default="", description="the key of the only conversation that recalls the fact; empty: all"
    )

    @property
    def fact(self) -> Fact:
        """The fact without its place."""
        return Fact(self.category, self.content)

    def without_secrets(self, redact: Redact) -> "NewFact":
        return self.model_copy(update={"content": redact(self.content)})


class FactChange(View):
    """Changes to a fact; a field that is left out stays as it is."""

    content: FactText | None = ValueField(default=None, description="the new text of the fact")
    category: FactCategory | None = ValueField(default=None, description="the topic; a sticky fact is in every prompt")
    confidence: Confidence | None = ValueField(default=None, description="the confidence of the fact, from 0 to 1")

    def without_secrets(self, redact: Redact) -> "FactChange":
        return self if self.content is None else self.model_copy(update={"content": redact(self.content)})


class StateChange(View):
    """A value to store under a key."""

    value: Annotated[str, ValueField(min_length=1, max_length=MAX_VALUE_CHARS)]
    place: Place = ""

    def without_secrets(self, key: str, redact: Redact) -> "StateChange":
        return self.model_copy(update={"value": redact_value(redact, key, self.value)})
