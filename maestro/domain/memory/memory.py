"""The long-term memory of an agent: facts that it learned, and state that it stores by key.

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
"""The most state keys of an agent per conversation key; all of them may enter a prompt."""

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


class FactCategory(StrEnum):
    """The topic of a fact; a sticky fact is in every prompt."""

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
        """The time of the last counted use or repeat, or of the fact's creation."""
        return self.last_accessed or self.created_at


class MemoryState(SQLModel, table=True):
    """A value that an agent stores under a key, in place of the old one. ``place`` is as in ``MemoryFact``."""

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
        return f"the key has {len(key)} characters, at most {MAX_KEY_CHARS} are kept; choose a shorter one"
    if len(value) > MAX_VALUE_CHARS:
        return f"the value has {len(value)} characters, at most {MAX_VALUE_CHARS} are kept; shorten it"
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
    """Return the ids of the facts for a prompt: highest confidence first, then last use, then newest."""
    ranked = sorted(facts, key=lambda fact: (current_confidence(fact, now), fact.last_used, fact.fact_id), reverse=True)
    return [fact.fact_id for fact in ranked[:count]]
