"""The words of ``maestro memory`` for people."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from maestro.cli.pages import more
from maestro.cli.table import lines
from maestro.domain.memory.views import FactView, MemoryPage, StateView

NO_FACTS = "The agent remembers no such fact."
NO_STATES = "The agent keeps no state."
FACT_COLUMNS = ("fact", "category", "sure", "learned", "told", "content")
STATE_COLUMNS = ("key", "since", "value")


def facts(page: MemoryPage) -> Iterator[str]:
    """Yield the lines that show facts, with the place of those that one conversation alone knows."""
    if not page.items:
        yield NO_FACTS
        return
    placed = any(fact.place for fact in page.items)
    head = (*FACT_COLUMNS[:-1], *(("place",) if placed else ()), FACT_COLUMNS[-1])
    yield from lines(head, [_fact(fact, placed=placed) for fact in page.items])
    yield from more(page.next)


def states(kept: Sequence[StateView]) -> Iterator[str]:
    """Yield the lines that show states."""
    if not kept:
        yield NO_STATES
        return
    placed = any(state.place for state in kept)
    head = (*STATE_COLUMNS[:-1], *(("place",) if placed else ()), STATE_COLUMNS[-1])
    yield from lines(
        head,
        [
            (state.key, _day(state.updated_at), *((state.place or "-",) if placed else ()), state.value)
            for state in kept
        ],
    )


def _fact(fact: FactView, *, placed: bool) -> tuple[str, ...]:
    place = (fact.place or "-",) if placed else ()
    told = f"{fact.access_count}x"
    return (str(fact.id), fact.category, f"{fact.confidence:.2f}", _day(fact.created_at), told, *place, fact.content)


def _day(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d")
