"""What an agent remembers beyond a conversation: facts it learned, and state it keeps.

See docs/decisions.md: memory scope, duplicate facts.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from sqlmodel import Field, Index, SQLModel, UniqueConstraint, text

from maestro.domain.columns import UtcDateTime, text_of

MAX_FACT_CHARS = 500
MAX_KEY_CHARS = 100
MAX_VALUE_CHARS = 2_000
MAX_STATES = 200
"""How many keys an agent keeps in one place; what is kept may all enter a prompt."""

EXTRACTED_CONFIDENCE = 0.8
"""How sure we are of what a model read out of a conversation."""
CERTAIN = 1.0
"""How sure we are of what an operator says."""
LEAST = 0.1
"""What is left of the confidence in a fact that nobody needed for long."""
FRESH = timedelta(days=30)
"""How long after its last use a fact is as sure as ever."""


COUNTED = timedelta(hours=1)
"""How often a fact's use is counted at most: an agent that answers all day would rewrite all it knows all day."""


class FactCategory(StrEnum):
    """What a fact is about; a sticky one is told to the model every time."""

    STICKY = "sticky"
    USER_PREFERENCE = "user_preference"
    PROJECT_CONTEXT = "project_context"
    LEARNED_PATTERN = "learned_pattern"
    IMPORTANT_EVENT = "important_event"


class MemoryFact(SQLModel, table=True):
    """One fact of one agent; ``confidence`` is between 0 and 1.

    Access is being told to a model, counted at most once an hour: ``last_accessed`` is the time of the last access that
    was counted, or of the last time that somebody said the same again.

    ``place`` is the key of the conversation in which alone it is remembered, empty for everywhere. ``likeness`` is what
    finds its repeats (``likeness.key``), ``words`` is how the index of searches is given it (``wording.indexed``).
    """

    __tablename__ = "memory_facts"
    __table_args__ = (
        Index("ix_memory_facts_agent", "agent_id", "category"),
        Index("ix_memory_facts_surest", "agent_id", "place", "confidence", text("coalesce(last_accessed, created_at)")),
    )

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id")
    category: FactCategory = Field(sa_type=text_of(FactCategory))
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
        """When a model heard it last, or it was learned."""
        return self.last_accessed or self.created_at


class MemoryState(SQLModel, table=True):
    """What an agent keeps under a key, the newest value only; ``place`` as for a fact."""

    __tablename__ = "memory_state"
    __table_args__ = (UniqueConstraint("agent_id", "place", "key"),)

    id: int | None = Field(default=None, primary_key=True)
    agent_id: int = Field(foreign_key="agents.id")
    place: str = ""
    key: str
    value: str
    updated_at: datetime = Field(sa_type=UtcDateTime)


def state_problem(key: str, value: str) -> str:
    """Say why this cannot be kept as state, empty when it can."""
    if not key.strip():
        return "a state needs a key, such as last-topic"
    if len(key) > MAX_KEY_CHARS:
        return f"the key has {len(key)} characters, at most {MAX_KEY_CHARS} are kept; choose a shorter one"
    if len(value) > MAX_VALUE_CHARS:
        return f"the value has {len(value)} characters, at most {MAX_VALUE_CHARS} are kept; shorten it"
    return ""


class RecalledFact(NamedTuple):
    """A fact as a model is told of it; ``is_counted`` says that its being told was counted within the last hour."""

    id: int
    category: FactCategory
    content: str
    is_counted: bool = False


class FactRank(NamedTuple):
    """What decides whether a fact is told: its id, how sure we are of it, and when it was used last."""

    fact_id: int
    confidence: float
    last_used: datetime


def confirmed_confidence(known: float, said: float) -> float:
    """Return how sure we are of a fact that is said again: a quarter of what was missing is added, at most to 1."""
    surest = max(known, said)
    return round(surest + (1 - surest) / 4, 3)


def current_confidence(fact: FactRank, now: datetime) -> float:
    """Return how sure we still are of a fact: a tenth less for every 30 days that nobody needed it, and never nothing.

    What was told to a model or said again within 30 days has its whole confidence. Sticky facts are told every time, so
    time does nothing to them.
    """
    if now - fact.last_used < FRESH:
        return fact.confidence
    idle = (now - fact.last_used) // FRESH
    return max(min(fact.confidence, LEAST), fact.confidence * 0.9**idle)


def rank_facts(facts: Iterable[FactRank], count: int, now: datetime) -> list[int]:
    """Return the ids of the facts to tell: those we are surest of, then those used last, then the newest."""
    ranked = sorted(facts, key=lambda fact: (current_confidence(fact, now), fact.last_used, fact.fact_id), reverse=True)
    return [fact.fact_id for fact in ranked[:count]]
