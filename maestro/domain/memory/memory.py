"""The memory of an agent: facts, state, tags and views (docs/decisions.md: memory scope, duplicate facts, tags)."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator
from pydantic import Field as ValueField
from rapidfuzz import fuzz
from sqlmodel import Field, Index, SQLModel, UniqueConstraint, text

from maestro.domain.columns import LARGEST, UtcDateTime, enum_column_type
from maestro.domain.redaction import Redact, redact_value
from maestro.domain.tags.grammar import Tag, TagName
from maestro.domain.texts import storable_text
from maestro.domain.values import Value, View

MAX_FACT_CHARS = 500
MAX_KEY_CHARS = 100
MAX_VALUE_CHARS = 2_000
MAX_STATES = 200
"""The most state keys of an agent in one conversation; all of them may enter a prompt."""

EXTRACTED_CONFIDENCE = 0.8
"""The confidence of a fact that a model extracted from a conversation."""
CERTAIN = 1.0
"""The confidence of a fact that an operator entered."""
LEAST = 0.1
"""The lower limit of a fact's confidence after a long time without use."""
FRESH = timedelta(days=30)
"""The time after its last use in which a fact keeps its full confidence."""

COUNTED = timedelta(hours=1)
"""The shortest time between two counted uses of a fact; it limits the writes of a busy agent."""

SPELT_ALIKE = 80.0
"""The least similarity (rapidfuzz ``ratio``, 0 to 100) of words that count as equal: preference, preferences."""
_TAG = rf"\[MEMORY:([\w-]+)\]((?:(?!\[/?(?:{'|'.join(TagName)})).)+)\[/MEMORY\]"
_TAGS = re.compile(_TAG, re.IGNORECASE)
_LINE = re.compile(rf"\s*(?:[-*]\s+|\d+[.)]\s+)?(?:{_TAG}\s*)+", re.IGNORECASE)

STATES = 1000
"""The most states in a page."""


class FactCategory(StrEnum):
    """The topic of a fact; facts with the topic ``sticky`` are in every prompt."""

    STICKY = "sticky"
    USER_PREFERENCE = "user_preference"
    PROJECT_CONTEXT = "project_context"
    LEARNED_PATTERN = "learned_pattern"
    IMPORTANT_EVENT = "important_event"


class MemoryFact(SQLModel, table=True):
    """A fact of one agent; ``confidence`` is between 0 and 1.

    An access is the use of the fact in a prompt, counted at most once an hour. ``last_accessed`` is the time of the
    last counted access or of the last repeat of the fact.

    ``place`` is the key of the conversation to which the fact is limited, empty for all conversations. ``likeness`` is
    the key that finds repeats (``likeness_key``), ``words`` the text for the search index (``index_text``).
    """

    __tablename__ = "memory_facts"
    __table_args__ = (
        Index("ix_memory_facts_agent", "agent_id", "category"),
        Index("ix_memory_facts_surest", "agent_id", "place", "confidence", text("coalesce(last_accessed, created_at)")),
    )

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id")
    category: FactCategory = Field(sa_type=enum_column_type(FactCategory))
    content: str
    place: str = ""
    likeness: str = ""
    words: str = ""
    confidence: float
    source_conversation_id: int | None = Field(default=None, foreign_key="conversations.id", index=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    last_accessed: datetime | None = Field(default=None, sa_type=UtcDateTime)
    access_count: int = 0

    @property
    def last_used(self) -> datetime:
        """The time of the last counted use or repeat, or of the fact's creation."""
        return self.last_accessed or self.created_at


class MemoryState(SQLModel, table=True):
    """A value that an agent stores under a key, in place of the key's old value; ``place`` is as in ``MemoryFact``."""

    __tablename__ = "memory_state"
    __table_args__ = (UniqueConstraint("agent_id", "place", "key"),)

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id")
    place: str = ""
    key: str
    value: str
    updated_at: datetime = Field(sa_type=UtcDateTime)


def state_problem(key: str, value: str) -> str:
    """Return why a key and value cannot be stored as state, or an empty text if they can."""
    if not key.strip():
        return "a state needs a key, such as last-topic"
    if len(key) > MAX_KEY_CHARS:
        return f"the key has {len(key)} characters, at most {MAX_KEY_CHARS} are stored; choose a shorter one"
    if len(value) > MAX_VALUE_CHARS:
        return f"the value has {len(value)} characters, at most {MAX_VALUE_CHARS} are stored; shorten it"
    return ""


class RecalledFact(NamedTuple):
    """A fact as shown in a prompt; ``is_counted`` is true if an access was counted within the last hour."""

    id: int
    category: FactCategory
    content: str
    is_counted: bool = False


class FactRank(NamedTuple):
    """The values by which facts are ranked for a prompt: id, confidence, and time of the last use."""

    fact_id: int
    confidence: float
    last_used: datetime


def confirmed_confidence(stored: float, repeated: float) -> float:
    """Return the confidence of a fact after a repeat: a quarter of the gap to 1 is added to the higher value."""
    surest = max(stored, repeated)
    return round(surest + (1 - surest) / 4, 3)


def current_confidence(fact: FactRank, now: datetime) -> float:
    """Return the confidence after decay: a tenth less for every 30 days without use, with a lower limit.

    A fact used or repeated within 30 days keeps its whole confidence. Sticky facts are in every prompt, so they never
    decay.
    """
    idle = max(0, (now - fact.last_used) // FRESH)
    return max(min(fact.confidence, LEAST), fact.confidence * 0.9**idle)


def rank_facts(facts: Iterable[FactRank], count: int, now: datetime) -> list[int]:
    """Return the ids of the ``count`` facts for a prompt: highest confidence first, then latest use, then newest."""
    ranked = sorted(facts, key=lambda fact: (current_confidence(fact, now), fact.last_used, fact.fact_id), reverse=True)
    return [fact.fact_id for fact in ranked[:count]]


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
        for name, body in _TAGS.findall(line):
            category, content = nearest_category(name), fact_line(body)
            if content:
                same = " ".join(content.casefold().split()).rstrip(".!")  # Repeats may differ in case and final stop.
                facts.setdefault((category, same), Fact(category, content))
    return tuple(facts.values())


def fact_line(text: str) -> str:
    """Return the text of a fact as it is stored: one line, at most 500 characters."""
    return storable_text(" ".join(text.split()))[:MAX_FACT_CHARS].rstrip()


def nearest_category(name: str) -> FactCategory:
    """Return the category nearest to a name that a model wrote, so that no fact is lost for an unknown name.

    The nearest category has the most words in common with the name (small spelling differences count as
    equal), or is ``learned_pattern`` without a common word.
    """
    written = re.split(r"[\W_]+", name.casefold())

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


def _checked_fact(text: str) -> str:
    text = " ".join(storable_text(text).split())
    if not text:
        raise ValueError("the fact is empty; write what the agent is to remember")
    if len(text) > MAX_FACT_CHARS:
        raise ValueError(
            f"the fact has {len(text)} characters, at most {MAX_FACT_CHARS} are stored; shorten or divide it"
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
    """A filter for facts; ``q`` is a search text. With ``place``, facts for all conversations are included.

    ``sticky`` selects only sticky facts (true) or only other facts (false), ``source`` the facts learned in the
    conversation with this id.
    """

    q: str | None = None
    category: FactCategory | None = ValueField(default=None, description="the topic, such as sticky (in every prompt)")
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
        """The category and the text of the fact."""
        return Fact(self.category, self.content)

    def redact_secrets(self, redact: Redact) -> "NewFact":
        return self.model_copy(update={"content": redact(self.content)})


class FactChange(View):
    """Changes to a fact; a field that is left out stays as it is."""

    content: FactText | None = ValueField(default=None, description="the new text of the fact")
    category: FactCategory | None = ValueField(default=None, description="the topic, such as sticky (in every prompt)")
    confidence: Confidence | None = ValueField(default=None, description="the confidence of the fact, from 0 to 1")

    def redact_secrets(self, redact: Redact) -> "FactChange":
        return self if self.content is None else self.model_copy(update={"content": redact(self.content)})


class StateChange(View):
    """A value to store under a key."""

    value: Annotated[str, ValueField(min_length=1, max_length=MAX_VALUE_CHARS)]
    place: Place = ""

    def redact_secrets(self, key: str, redact: Redact) -> "StateChange":
        return self.model_copy(update={"value": redact_value(redact, key, self.value)})
