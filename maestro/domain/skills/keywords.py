"""Finds the keywords of skills in a message: as whole words, in any script, whatever the case."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

_WORD = re.compile(r"\w+")
# Scripts that put no blank between words: there a keyword is found wherever it stands.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")


def fold(text: str) -> str:
    """Return a text in the form in which letters of either case, wide letters and every run of blanks are the same."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return " ".join(folded.split())


class Words:
    """A message, ready to be searched."""

    def __init__(self, message: str) -> None:
        self.text = fold(message)
        self.words = frozenset(_WORD.findall(self.text))


class _Prepared(NamedTuple):
    place: int
    source: str
    keyword: str
    pieces: frozenset[str]


@dataclass(frozen=True)
class Keywords:
    """Words and phrases to look for, such as ``pull request``, ``c++`` and ``.net``, of one skill or of hundreds."""

    sources: Sequence[str]

    @cached_property
    def _by_sign(self) -> Mapping[str, Sequence[_Prepared]]:
        """Each under one of its words, without which a message cannot have it; under nothing where it has none."""
        found: dict[str, list[_Prepared]] = {}
        for place, source in enumerate(self.sources):
            keyword = fold(source)
            if keyword:
                pieces = _pieces(keyword)
                found.setdefault(max(pieces, key=len, default=""), []).append(_Prepared(place, source, keyword, pieces))
        return found

    def found(self, message: Words) -> tuple[str, ...]:
        """Return those that stand in the message as whole words: with no letter, digit or ``_`` right beside them.

        They are in the order of their sources. Only those are looked for whose sign is a word of the message: most
        messages have none, however many keywords there are.
        """
        signs = self._by_sign.keys() & message.words
        near = chain(self._by_sign.get("", ()), *(self._by_sign[sign] for sign in signs))
        there = [one for one in near if one.pieces <= message.words and _stands_in(one.keyword, message.text)]
        return tuple(one.source for one in sorted(there))


def _pieces(keyword: str) -> frozenset[str]:
    """Return the words that a text must have for the keyword to be there; none where words are not set apart."""
    return frozenset() if _UNSPACED.search(keyword) else frozenset(_WORD.findall(keyword))


def _stands_in(keyword: str, text: str) -> bool:
    return any(_is_whole(keyword, text, at) for at in _places(keyword, text))


def _places(keyword: str, text: str) -> Iterable[int]:
    at = text.find(keyword)
    while at >= 0:
        yield at
        at = text.find(keyword, at + 1)


def _is_whole(keyword: str, text: str, at: int) -> bool:
    end = at + len(keyword)
    before, after = text[at - 1 : at], text[end : end + 1]
    return not _joined(before, keyword[0]) and not _joined(after, keyword[-1])


def _joined(outside: str, edge: str) -> bool:
    """Say whether the keyword goes on beyond its edge."""
    if not outside or _UNSPACED.match(edge):
        return False
    # Marks are the vowels of some scripts and the accents of others: what they stand on is no whole word.
    return outside.isalnum() or outside == "_" or unicodedata.category(outside).startswith("M")
