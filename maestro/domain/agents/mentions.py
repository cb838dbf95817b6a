"""Finds the agent that a text mentions: ``@slug`` or ``@name`` as a whole token, in any case and any script."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

MOST_MARKS = 1_000
"""How many ``@`` of a text are looked at: nobody means an agent with a later one, and a text may be full of them."""
_MARK = re.compile("[@\uff20\ufe6b]")
_LOCAL_PART = ".+-%"
"""What may stand between the letters before the ``@`` of an e-mail address."""
_JOINS = "-."
"""What makes one token of two words: ``@coder-2`` and ``@coder.example`` do not mean ``coder``."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts that put no blank between words, or none before what is attached to a name: they end a token."""


class Named(Protocol):
    """An agent under its id, and the names it goes by."""

    @property
    def id(self) -> int:
        """Its id."""
        ...

    @property
    def slug(self) -> str:
        """Its slug."""
        ...

    @property
    def name(self) -> str:
        """The name people see."""
        ...


def marked(content: str) -> bool:
    """Say whether a text can mention anybody."""
    return _MARK.search(content) is not None


def mentioned(content: str, agents: Sequence[Named]) -> int | None:
    """Return the id of the agent that a text mentions first, if it mentions one.

    Where several names fit at one ``@``, the longest is meant; of equal ones a slug, then the name of the agent that is
    first in ``agents``. Upper and lower case, and forms of a letter that Unicode holds for the same, do not matter. An
    e-mail address mentions nobody.
    """
    if not marked(content):
        return None
    known = _names(agents)
    lengths = sorted({len(name) for name in known}, reverse=True)
    text = _folded(content)
    found = (_at(text, mark, known, lengths) for mark in _marks(text))
    return next((agent for agent in found if agent is not None), None)


def _names(agents: Sequence[Named]) -> dict[str, int]:
    known: dict[str, int] = {}
    for agent in agents:
        known.setdefault(agent.slug.lower(), agent.id)
    for agent in agents:
        known.setdefault(_folded(agent.name).strip(), agent.id)
    known.pop("", None)
    return known


def _marks(text: str) -> Iterable[int]:
    at = text.find("@")
    for _ in range(MOST_MARKS):
        if at < 0:
            return
        if _begins(text, at):
            yield at
        at = text.find("@", at + 1)


def _begins(text: str, at: int) -> bool:
    """Say whether a token begins at this ``@``: before it is no word, as in an e-mail address."""
    before = text[at - 1] if at else ""
    joined = before in _LOCAL_PART and at > 1 and _in_word(text[at - 2])
    return not (_in_word(before) or before == "@" or joined)


def _at(text: str, mark: int, known: Mapping[str, int], lengths: Sequence[int]) -> int | None:
    begin = mark + 1
    for length in lengths:
        agent = known.get(text[begin : begin + length])
        if agent is not None and _ends(text, begin + length):
            return agent
    return None


def _ends(text: str, end: int) -> bool:
    after = text[end : end + 1]
    joined = after in _JOINS and _in_word(text[end + 1 : end + 2])
    return not (_in_word(after) or after == "@" or joined)


def _in_word(character: str) -> bool:
    if not character or _UNSPACED.match(character):
        return False
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
