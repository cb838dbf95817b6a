"""Words of every script for search, and the comparison that finds duplicate facts.

See docs/decisions.md: duplicate facts.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from rapidfuzz import fuzz, process
from rapidfuzz.distance import Indel

MOST_WORDS = 32
"""How many words of a query are looked for; each takes two looks into the index."""

MOST_CHARS = 4_000
"""How much of a query is read; who pastes a whole page looks for what it begins with."""

NO_BLANKS = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese, Chinese
    "\U00020000-\U0003ffff"
)
"""Characters of scripts that put no blanks between words."""

_UNSPACED = re.compile(f"([{NO_BLANKS}])")
_RUN = re.compile(f"[{NO_BLANKS}]+|[^{NO_BLANKS}]+")
_BETWEEN = re.compile(r"[\s!\"$-&(-*,\-./:-@\[-^`{-~\x00-\x1f\x7f¡«»¿\u2000-\u206f\u3000-\u303f\ud800-\udfff]+")
_SAME = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "−": "-", "\x00": " "})

NEAR = 90.0
"""How similar the sorted words of two facts must be for them to be compared (rapidfuzz ``ratio``, 0 to 100)."""

MOST_NEAR = 5
"""How many facts a new one is compared with, word by word; a thousand may differ from it in nothing but a number."""

SPELT_ALIKE = 0.93
"""How similar two words must be to be one word in two spellings: one letter more or less among fourteen."""

MOST_PARTS = 4
"""Of how many parts every order is tried: 24 orders."""

_ARTICLES = frozenset({"the", "a", "an"})
_AND = frozenset({"and", "&", "und", "et", "и"})
_MEANING = frozenset("#%&@*")
"""Punctuation that does more than make a text easier to read: C#, 5%."""

_STOP = re.compile(rf"[,.;:!?](?=\s|$|[{NO_BLANKS}])|[、。]")  # not in 1.5 nor in 1,000
_WORD = re.compile(r"(?<!\w)[+-]\d+|\w+(?:'\w+)*[+#]*|\S")


def plain(text: str) -> str:
    """Return the text with one form for what looks the same: wide letters, ligatures, apostrophes."""
    return unicodedata.normalize("NFKC", text).translate(_SAME)


def spaced(text: str) -> str:
    """Return the text with blanks around every character of a script that has none between words."""
    return _UNSPACED.sub(r" \1 ", text)


def indexed(text: str) -> str:
    """Return a text as the index is given it: in one form, without case, its words apart."""
    return " ".join(spaced(plain(text).casefold()).split())


def wanted(query: str) -> tuple[str, ...]:
    """Return what to look for, each once: words, and of scripts without blanks every two characters together.

    ``C++``, ``C#``, ``what's`` and ``snake_case`` are words. Nothing is left of a text without letters and digits.
    """
    text = plain(query[:MOST_CHARS]).casefold()
    found = [piece for word in _BETWEEN.split(text) for run in _RUN.findall(word) for piece in _pieces(run)]
    told = [piece.strip("'") for piece in found if any(map(str.isalnum, piece))]
    return tuple(dict.fromkeys(told))[:MOST_WORDS]


def _pieces(run: str) -> list[str]:
    if not _UNSPACED.match(run):
        return [run]
    return [" ".join(run[at : at + 2]) for at in range(max(1, len(run) - 1))]


class _Word(NamedTuple):
    text: str
    exact: bool
    """No other spelling is the same word: it has digits, a capital, or a script without capitals."""


_Part = tuple[_Word, ...]


def likeness_key(content: str) -> str:
    """Return the words of a fact, sorted, without case, articles and punctuation: repeats have much the same key."""
    return " ".join(sorted(word.text for word in _joined(_parts(content))))


def key_lengths(contents: Sequence[str]) -> tuple[int, int]:
    """Return the least and the most characters that the key of a repeat of any of these can have.

    Keys of which one is longer than the other by more than a tenth of both together are less alike than ``NEAR``. It is
    cheaper to say so than to compare them.
    """
    sizes = [len(likeness_key(content)) for content in contents]
    differs = 100 - int(NEAR)
    return min(sizes) * (100 - differs) // (100 + differs), -(-max(sizes) * (100 + differs) // (100 - differs))


def similar_facts(content: str, known: Mapping[int, str]) -> Sequence[int]:
    """Return which facts may be the same as this one, the five most similar first, from the keys of facts by id."""
    near = process.extract(likeness_key(content), known, scorer=fuzz.ratio, score_cutoff=NEAR, limit=MOST_NEAR)
    return [fact_id for _, _, fact_id in near]


def say_the_same(one: str, other: str) -> bool:
    """Say whether two facts say the same, so that one of them is enough.

    They do when they have the same words in the same order, whatever their case, punctuation and articles, where a long
    word may be spelt in two ways; or the same words in another order of what commas or "and" separate. Everything else
    differs: a word more or less, such as "not", another number, another name, another short word. The likeness of the
    whole cannot tell: "likes cats" and "likes bats" are 90 % alike, "lives in Rome" and "does not live in Rome" 71 %,
    and "at work, Grace drinks tea" and "Grace drinks tea at work" 65 %. So the threshold ``NEAR`` on sorted words only
    finds what to compare, and this decides. In doubt two facts differ: to keep a repeat costs a line, to refuse a fact
    loses it.
    """
    ours, theirs = _parts(one), _parts(other)
    left, right = _joined(ours), _joined(theirs)
    if len(left) == len(right) and all(map(_alike, left, right)):
        return True
    if Counter(_texts(left)) != Counter(_texts(right)) or _numbers(left) != _numbers(right):
        return False
    return _rearranged(ours, _texts(right)) or _rearranged(theirs, _texts(left)) or _listed(ours, theirs)


def _parts(content: str) -> list[_Part]:
    """Return the words between stops and "and"."""
    parts: list[list[_Word]] = []
    first = True
    for piece in _STOP.split(plain(content)):
        parts.append([])
        for text in _WORD.findall(spaced(piece)):
            if text in _AND:
                parts.append([])
            elif _counts(text, first=first):
                parts[-1].append(_Word(text.casefold(), _is_exact(text)))
            first = False
    return [tuple(part) for part in parts if part]


def _counts(text: str, *, first: bool) -> bool:
    if text.casefold() in _ARTICLES:
        return not (first or text.islower())  # vitamin A
    return len(text) > 1 or text in _MEANING or unicodedata.category(text)[0] not in "PZC"


def _is_exact(text: str) -> bool:
    return any(map(str.isdigit, text)) or not text.islower()


def _joined(parts: Sequence[_Part]) -> _Part:
    return tuple(word for part in parts for word in part)


def _texts(words: Sequence[_Word]) -> tuple[str, ...]:
    return tuple(word.text for word in words)


def _numbers(words: Sequence[_Word]) -> list[str]:
    return [word.text for word in words if any(map(str.isdigit, word.text))]


def _alike(one: _Word, other: _Word) -> bool:
    if one.text == other.text:
        return True
    if one.exact or other.exact or one.text[0] != other.text[0]:  # comfortable, uncomfortable
        return False
    return Indel.normalized_similarity(one.text, other.text) >= SPELT_ALIKE


def _rearranged(parts: Sequence[_Part], words: tuple[str, ...]) -> bool:
    """Say whether the parts in some order are these words: "at work, she drinks tea", "she drinks tea at work"."""
    return len(parts) <= MOST_PARTS and any(_texts(_joined(order)) == words for order in permutations(parts))


def _listed(ours: Sequence[_Part], theirs: Sequence[_Part]) -> bool:
    """Say whether both list the same in another order: "likes tea and milk", "likes milk and tea"."""
    if len(ours) != len(theirs) or len(ours) < 2:
        return False
    head = _shared(ours[0], theirs[0])
    tail = _shared(ours[-1][::-1], theirs[-1][::-1])
    return _entries(ours, head, tail) == _entries(theirs, head, tail)


def _shared(one: _Part, other: _Part) -> int:
    """Return how many words both begin with."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a.text != b.text), min(len(one), len(other))
    )


def _entries(parts: Sequence[_Part], head: int, tail: int) -> Counter[tuple[str, ...]]:
    def texts() -> Iterator[tuple[str, ...]]:
        for at, part in enumerate(parts):
            end = len(part) - (tail if at == len(parts) - 1 else 0)
            yield _texts(part[head if at == 0 else 0 : end])

    return Counter(texts())
