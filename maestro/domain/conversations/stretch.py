"""A stretch of a conversation as people read it: messages, and between them what was compacted and learned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge

from maestro.domain.conversations.conversation import Compaction
from maestro.domain.conversations.views import Spoken
from maestro.domain.memory.memory import MemoryFact


@dataclass(frozen=True)
class Stretch:
    """Messages that stand together, oldest first.

    ``older`` says whether others stand before them, ``following`` is the first one after them, None for the newest.
    """

    said: Sequence[Spoken]
    older: bool
    following: Spoken | None

    @property
    def since(self) -> datetime | None:
        """From when on it tells what happened, None for from the beginning."""
        return self.said[0].message.created_at if self.older and self.said else None

    @property
    def until(self) -> datetime | None:
        """Up to when it tells what happened, None for until now."""
        return self.following.message.created_at if self.following is not None else None

    def covers(self, moment: datetime) -> bool:
        """Say whether what happened then is told here."""
        return (self.since is None or self.since <= moment) and (self.until is None or moment < self.until)


@dataclass(frozen=True)
class Entry:
    """One thing that happened: a message was said, messages were compacted, or a fact was learned."""

    at: datetime
    said: Spoken | None = None
    compaction: Compaction | None = None
    fact: MemoryFact | None = None


def entries(stretch: Stretch, compactions: Sequence[Compaction], facts: Sequence[MemoryFact]) -> Iterator[Entry]:
    """Yield what happened in a stretch in the order of time; of the same moment, what was said comes first."""
    said = (Entry(one.message.created_at, said=one) for one in stretch.said)
    compacted = (Entry(one.created_at, compaction=one) for one in compactions if stretch.covers(one.created_at))
    learned = (Entry(one.created_at, fact=one) for one in facts if stretch.covers(one.created_at))
    return merge(said, learned, compacted, key=lambda entry: entry.at)


def around(text: str, wanted: str, chars: int = 80) -> tuple[str, str, str]:
    """Return where a text contains what somebody looks for: what stands before it, itself, and what stands after.

    Only so many characters of either side are kept. Where the text does not contain it in this spelling, its beginning
    is returned.
    """
    at = text.casefold().find(wanted.casefold()) if len(text.casefold()) == len(text) else text.find(wanted)
    if at < 0:
        return _ended(text, 2 * chars), "", ""
    end = at + len(wanted)
    before = f"…{text[at - chars : at]}" if at > chars else text[:at]
    return before, text[at:end], _ended(text[end:], chars)


def _ended(text: str, chars: int) -> str:
    return f"{text[:chars]}…" if len(text) > chars else text
