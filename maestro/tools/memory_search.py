"""The tool ``memory_search``: what the agent has learned."""

import re
from collections.abc import Iterable, Sequence

from maestro.domain.memory import MemoryFact
from maestro.store.transaction import Transaction
from maestro.tools.base import Arguments, Caller, tool_spec

MOST = 20
USUAL = 5

_WORDS = re.compile(r"\w+(?:['’]\w+)*[+#]*")
_WHOLE, _PREFIX, _INSIDE = 4, 2, 1
_MIN_PREFIX = 3


class MemorySearch:
    """Looks through the facts of the calling agent; it only reads."""

    spec = tool_spec(
        "memory_search",
        "Search what you remember from earlier conversations: facts about people, their preferences, projects and "
        "events. Returns the facts that fit best, one a line. Give a few words that would stand in the fact.",
        {
            "query": {
                "type": "string",
                "maxLength": 400,
                "description": "words to look for; leave it empty for the surest facts",
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": f"facts at most, else {USUAL}"},
        },
        ["query"],
    )
    idempotent = True
    read_only = True

    def act(self, tx: Transaction, arguments: Arguments, caller: Caller) -> str:
        """Return the facts, best first."""
        most = arguments.get("limit", USUAL)
        query = arguments["query"]
        if not words(query):
            found: Sequence[MemoryFact] = tx.memory.best(caller.agent_id, most)[:most]
        else:
            found = ranked(tx.memory.known(caller.agent_id), query)[:most]
        if not found:
            return "Nothing you remember fits."
        return "\n".join(f"- [{fact.category}, {fact.created_at:%Y-%m-%d}] {fact.content}" for fact in found)


def words(text: str) -> list[str]:
    """Return the words of a text without case; ``C++`` and ``what's`` are words."""
    return _WORDS.findall(text.casefold())


def ranked(facts: Iterable[MemoryFact], query: str) -> list[MemoryFact]:
    """Return the facts that have a word of the query, best first.

    A whole word counts more than the beginning of one; where two fit equally, the surer comes first, then the newer.
    """
    wanted = list(dict.fromkeys(words(query)))
    rated = [(_score(fact.content, wanted), fact) for fact in facts]
    fitting = [(score, fact) for score, fact in rated if score]
    fitting.sort(key=lambda pair: (pair[0], pair[1].confidence, pair[1].created_at, pair[1].id), reverse=True)
    return [fact for _, fact in fitting]


def _score(content: str, wanted: Sequence[str]) -> int:
    known = words(content)
    return sum(_fit(word, known) for word in wanted)


def _fit(word: str, known: Sequence[str]) -> int:
    if word in known:
        return _WHOLE
    if len(word) >= _MIN_PREFIX and any(other.startswith(word) for other in known):
        return _PREFIX
    # Chinese, Japanese and Thai put no blanks between words.
    if not word.isascii() and any(word in other for other in known):
        return _INSIDE
    return 0
