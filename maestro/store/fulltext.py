"""The index over what agents remember: SQLite's FTS5, asked so that nothing a person wrote is syntax."""

from collections.abc import Sequence

from sqlalchemy import column, func, literal_column, table, text
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from maestro.domain.memory.memory import MemoryFact

INDEX = "memory_index"

SHADOWS = frozenset({INDEX, *(f"{INDEX}_{part}" for part in ("config", "data", "docsize", "idx"))})
"""The tables that FTS5 keeps, which no model describes."""

SHORTEST_BEGINNING = 3
"""How many ASCII letters of a word find longer ones; in other scripts a letter says more, and two are enough."""


def found_by(words: Sequence[str], agent_id: int) -> SelectOfScalar[MemoryFact]:
    """Return the query for the facts of an agent that have any of the words (``wording.wanted``), best first."""
    rank = func.bm25(literal_column(INDEX), 0.0, 1.0)  # smaller is better; whose it is counts for nothing
    index = table(INDEX, column("rowid"))
    return (
        select(MemoryFact)
        .join(index, index.c.rowid == col(MemoryFact.id))
        .where(text(f"{INDEX} MATCH :match").bindparams(match=_match(words, agent_id)))
        .order_by(rank * (1 + col(MemoryFact.confidence)), col(MemoryFact.confidence).desc(), col(MemoryFact.id).desc())
    )


def _match(words: Sequence[str], agent_id: int) -> str:
    """Write words in the language of MATCH: a quoted string is never syntax."""
    terms = " OR ".join(term for word in words for term in _terms(word))
    return f'agent_id : "{agent_id}" AND words : ({terms})'


def _terms(word: str) -> Sequence[str]:
    quoted = '"' + word.replace('"', '""') + '"'
    begins = len(word) >= (SHORTEST_BEGINNING if word.isascii() else SHORTEST_BEGINNING - 1)
    return (quoted, f"{quoted}*") if begins and " " not in word else (quoted,)
