"""Normalises text for search in all scripts, and finds repeated facts (docs/decisions.md: duplicate facts)."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations, takewhile
from typing import NamedTuple

from rapidfuzz import fuzz, process
from rapidfuzz.distance import Indel

MOST_WORDS = 32
"""The most search terms of a query; each takes two index lookups."""

MOST_CHARS = 4_000
"""The most characters of a query that are read: the beginning of a pasted page is enough."""

NO_BLANKS = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese, Chinese
    "\U00020000-\U0003ffff"
)
"""The characters of scripts that write no blanks between words."""

_UNSPACED = re.compile(f"([{NO_BLANKS}])")
_RUN = re.compile(f"[{NO_BLANKS}]+|[^{NO_BLANKS}]+")
_BETWEEN = re.compile(r"[\s!\"$-&(-*,\-./:-@\[-^`{-~\x00-\x1f\x7f¡«»¿\u2000-\u206f\u3000-\u303f\ud800-\udfff]+")
_SAME = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "−": "-", "\x00": " "})

_ACCENTS = re.compile("[\u0300-\u036f]+")
_IN_WORDS = frozenset("+#_")
_WORD_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Co", "Mn", "Mc"})
"""The Unicode categories of the characters of words, the same as in the search index of SQLite."""

NEAR = 90.0
"""Facts with a lower similarity of their sorted words (rapidfuzz ``ratio``, 0 to 100) are no repeats."""


SPELT_ALIKE = 0.93
"""The least similarity (0 to 1) of two spelling variants of a word: one extra letter in fourteen."""

MOST_PARTS = 4
"""The most parts of a fact that are compared in every order: four parts have 24 orders."""

_MEANING = frozenset("#%&@*")
"""Punctuation that is part of the meaning: C#, 5%."""

_STOP = re.compile(rf"[,.;:!?](?=\s|$|[{NO_BLANKS}])|[、。]")  # Numbers such as 1.5 and 1,000 are not split.


def normalize_characters(text: str) -> str:
    """Return the text with one form for characters that look the same: wide letters, ligatures, apostrophes."""
    return unicodedata.normalize("NFKC", text).translate(_SAME)


def separate_characters(text: str) -> str:
    """Return the text with blanks around each character of a script without blanks between words."""
    return _UNSPACED.sub(r" \1 ", text)


def index_text(text: str) -> str:
    """Return the words of a text as stored in the search index: normalised, without case, accents and punctuation."""
    folded = unicodedata.normalize("NFKD", normalize_characters(text).casefold())
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", folded))
    letters = (char if char in _IN_WORDS or unicodedata.category(char) in _WORD_CATEGORIES else " " for char in plain)
    return " ".join(separate_characters("".join(letters)).split())


def search_terms(query: str) -> tuple[str, ...]:
    """Return the search terms of a query without repeats: words, and pairs of characters in scripts without blanks.

    ``C++``, ``C#``, ``what's`` and ``snake_case`` are words. A query without letters and digits has no terms.
    """
    text = normalize_characters(query[:MOST_CHARS]).casefold()
    terms = list[str]()
    for run in (run for word in _BETWEEN.split(text) for run in _RUN.findall(word)):
        pairs = (" ".join(run[at : at + 2]) for at in range(max(1, len(run) - 1)))
        terms.extend(pairs if _UNSPACED.match(run) else [run])
    return tuple(dict.fromkeys(term.strip("'") for term in terms if any(map(str.isalnum, term))))[:MOST_WORDS]


class _Word(NamedTuple):
    text: str
    exact: bool
    """Whether spelling variants are excluded: the word has digits, a capital letter, or a script without capitals."""


_Part = tuple[_Word, ...]


def likeness_key(content: str) -> str:
    """Return the words of a fact, sorted, without case, articles and punctuation; repeats have similar keys."""
    return " ".join(sorted(word.text for word in _join_parts(_split_parts(content))))


def key_lengths(contents: Sequence[str]) -> tuple[int, int]:
    """Return the shortest and longest key, in characters, that a repeat of any of these facts can have.

    If the lengths of two keys differ by more than a tenth of their sum, their similarity is below ``NEAR``. Filtering
    by length first is cheaper than comparing.
    """
    sizes = [len(likeness_key(content)) for content in contents]
    differs = 100 - int(NEAR)
    return min(sizes) * (100 - differs) // (100 + differs), -(-max(sizes) * (100 + differs) // (100 - differs))


def similar_facts(content: str, known: Mapping[int, str]) -> Sequence[int]:
    """Return ids of up to five facts that may repeat ``content``, most similar first; ``known`` maps ids to keys."""
    near = process.extract(likeness_key(content), known, scorer=fuzz.ratio, score_cutoff=NEAR, limit=5)
    return [fact_id for _, _, fact_id in near]


def same_fact(one: str, other: str) -> bool:
    """Return whether two facts have the same meaning, so that one of them is enough.

    Two facts have the same meaning if they have the same words in the same order, regardless of case, punctuation and
    articles, and with spelling variants of long words; or if parts separated by commas or "and" are in another order.

    Any other difference counts: one more word, such as "not", another number, another name, another short word. A
    similarity of the whole text cannot decide this: "likes cats" and "likes bats" are 90 % alike, "lives in Rome" and
    "does not live in Rome" 71 %, "at work, Grace drinks tea" and "Grace drinks tea at work" 65 %. The threshold
    ``NEAR`` on sorted words therefore only selects candidates, and this function decides. In doubt two facts are
    different: a stored repeat costs one line, a wrong match loses a fact.
    """
    one_parts, other_parts = _split_parts(one), _split_parts(other)
    left, right = _join_parts(one_parts), _join_parts(other_parts)
    if len(left) == len(right) and all(map(_are_variants, left, right)):
        return True
    if Counter(_word_texts(left)) != Counter(_word_texts(right)) or _number_texts(left) != _number_texts(right):
        return False
    if _is_rearranged(one_parts, _word_texts(right)) or _is_rearranged(other_parts, _word_texts(left)):
        return True
    # Both facts list the same entries in another order: "likes tea and milk", "likes milk and tea".
    if len(one_parts) != len(other_parts) or len(one_parts) < 2:
        return False
    head = _common_words(one_parts[0], other_parts[0])
    tail = _common_words(one_parts[-1][::-1], other_parts[-1][::-1])
    return _list_entries(one_parts, head, tail) == _list_entries(other_parts, head, tail)


def _split_parts(content: str) -> list[_Part]:
    """Return the parts of a fact, split at punctuation and "and", each as its words."""
    parts: list[list[_Word]] = []
    first = True
    for piece in _STOP.split(normalize_characters(content)):
        parts.append([])
        for text in re.findall(r"(?<!\w)[+-]\d+|\w+(?:'\w+)*[+#]*|\S", separate_characters(piece)):
            if text in {"and", "&", "und", "et", "и"}:
                parts.append([])
            elif _is_significant(text, first=first):
                parts[-1].append(_Word(text.casefold(), not text.islower() or any(map(str.isdigit, text))))
            first = False
    return [tuple(part) for part in parts if part]


def _is_significant(text: str, *, first: bool) -> bool:
    if text.casefold() in {"the", "a", "an"}:
        return not (first or text.islower())  # A capital "A" as in "vitamin A" is no article.
    return len(text) > 1 or text in _MEANING or unicodedata.category(text)[0] not in "PZC"


def _join_parts(parts: Sequence[_Part]) -> _Part:
    return tuple(word for part in parts for word in part)


def _word_texts(words: Sequence[_Word]) -> tuple[str, ...]:
    return tuple(word.text for word in words)


def _number_texts(words: Sequence[_Word]) -> list[str]:
    return [word.text for word in words if any(map(str.isdigit, word.text))]


def _are_variants(one: _Word, other: _Word) -> bool:
    if one.text == other.text:
        return True
    if one.exact or other.exact or one.text[0] != other.text[0]:  # "comfortable" is no variant of "uncomfortable"
        return False
    return Indel.normalized_similarity(one.text, other.text) >= SPELT_ALIKE


def _is_rearranged(parts: Sequence[_Part], words: tuple[str, ...]) -> bool:
    """Return whether some order of the parts gives these words: "at work, she drinks", "she drinks at work"."""
    return len(parts) <= MOST_PARTS and any(_word_texts(_join_parts(order)) == words for order in permutations(parts))


def _common_words(one: _Part, other: _Part) -> int:
    pairs = zip(_word_texts(one), _word_texts(other), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _list_entries(parts: Sequence[_Part], head: int, tail: int) -> Counter[tuple[str, ...]]:
    """Count the parts, without ``head`` first words of the first part and ``tail`` last words of the last part."""
    first, *middle, last = map(_word_texts, parts)
    return Counter([first[head:], *middle, last[: len(last) - tail]])
