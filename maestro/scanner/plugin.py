"""The common parts of all rules: data files, text folded to one byte per character, and the base class of plugins."""

import re
import tomllib
import unicodedata
from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

from detect_secrets.plugins.base import BasePlugin

from maestro.domain.redaction import REDACTED, TextSpan

BLANKED = b"\x01"
"""The byte that replaces text which is already redacted; no rule matches across it."""
OTHER = "\xff"
"""The character that replaces every character without an ASCII look-alike."""

_MARK = REDACTED.encode()
_UNSEEN = ("Mn", "Me", "Cf")
_NOT_ASCII = re.compile("[^\x00-\x7f]+(?:[\x00-\x7f]{1,4}[^\x00-\x7f]+)*")
_ESCAPE = re.compile(
    rb"\\(?:u00[0-7][0-9A-Fa-f]|x[0-7][0-9A-Fa-f]|[nrt]|[!-/:-@\[-`{-~])"
    rb"|%[2-7][0-9A-Fa-f]|&(?:#\d{2,3}|#[xX][2-7][0-9A-Fa-f]|amp|quot|apos|lt|gt);"
)
_BLANKS = {"n": b"\n", "r": b"\n", "t": b" "}

ByteRange = tuple[int, int]
"""The range of a secret: the position of its first byte, and the position after its last byte."""


@cache
def read_tables(name: str) -> Mapping[str, Any]:
    """Read ``words.toml`` (names of values, look-alikes, foreign words) or ``patterns.toml`` (tokens, logins)."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


@cache
def word_set(name: str) -> frozenset[str]:
    """Return the set of words with this name in ``words.toml``."""
    return frozenset(read_tables("words.toml")[name].split())


@dataclass(frozen=True, slots=True)
class FoldedText:
    """The folded bytes of a text; ``starts`` and ``ends`` map them to the original, None if all positions are equal."""

    data: bytes
    starts: Sequence[int] | None = None
    ends: Sequence[int] | None = None

    def original_range(self, start: int, end: int) -> TextSpan:
        """Return the range of the original text for a non-empty range of the bytes."""
        if self.starts is None or self.ends is None:
            return TextSpan(start, end)
        return TextSpan(self.starts[start], self.ends[end - 1])


class TextFolder(dict[int, str | None]):
    """Folds texts and caches the replacement of each character; one instance is used for many texts."""

    def __missing__(self, code: int) -> str | None:
        """Cache and return the replacement of a character; None removes an invisible character."""
        self[code] = folded = _fold_character(chr(code))
        return folded

    def list_folded_forms(self, text: str) -> Iterator[FoldedText]:
        """Return the folded text and, if it contains escapes, also the text with the escapes resolved."""
        plain = self._fold_text(text)
        yield plain
        if b"\\" in plain.data or b"%" in plain.data or b"&" in plain.data:
            unescaped = _resolve_escapes(plain)
            if unescaped is not None:
                yield unescaped

    def _fold_text(self, text: str) -> FoldedText:
        if text.isascii():
            return FoldedText(text.encode().replace(_MARK, BLANKED * len(_MARK)))
        starts, words, english = read_foreign_words()
        translated = text
        if starts.search(text):
            translated = words.sub(lambda word: english.get(word[0].casefold(), word[0]), text)
        folded = _NOT_ASCII.sub(lambda run: run[0].translate(self), translated)
        data = folded.encode("latin-1").replace(_MARK, BLANKED * len(_MARK))
        if len(folded) == len(text):
            return FoldedText(data)
        places = [index for index, character in enumerate(text) if self[ord(character)] is not None]
        return FoldedText(data, places, [index + 1 for index in places])


def _fold_character(character: str) -> str | None:
    if character.isascii():
        return character
    if unicodedata.category(character) in _UNSEEN or character in "\u115f\u1160\u3164\uffa0\u2800":
        return None
    if character in read_look_alikes():
        return read_look_alikes()[character]
    if character.isspace():
        return " "
    letters = "".join(c for c in unicodedata.normalize("NFKD", character) if unicodedata.category(c) not in _UNSEEN)
    if len(letters) != 1:
        return OTHER
    return letters if letters.isascii() else read_look_alikes().get(letters, OTHER)


@cache
def read_look_alikes() -> Mapping[str, str]:
    """Return the ASCII look-alike of each character; for full-width and mathematical forms, decomposition finds it."""
    return {pair[0]: pair[1] for pair in word_set("look_alikes")}


@cache
def read_foreign_words() -> tuple["re.Pattern[str]", "re.Pattern[str]", Mapping[str, str]]:
    """Return a pattern of the first letters of foreign words, a pattern of the words, and an English word for each.

    The English word has the same length, so that no position in the text moves.

    The first pattern is a fast pre-check: most non-ASCII texts contain only a dash or an accent. A letter can have more
    than two forms, such as the Greek sigma at the end of a word, and the pattern matches all of them.
    """
    known: Mapping[str, str] = read_tables("words.toml")["foreign_words"]
    starts = re.compile("[" + "".join(word[0] for word in known) + "]", re.IGNORECASE)
    whole = re.compile("|".join(sorted(known, key=len, reverse=True)), re.IGNORECASE)
    return starts, whole, {word.casefold(): english for word, english in known.items()}


def _resolve_escapes(plain: FoldedText) -> FoldedText | None:
    """Return the bytes with their escapes resolved; None for bytes without escapes."""
    parts: list[bytes] = []
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    for match in _ESCAPE.finditer(plain.data):
        parts += [plain.data[at : match.start()], _resolve_escape(match[0].decode())]
        starts += [*range(at, match.start()), match.start()]
        ends += [*range(at + 1, match.start() + 1), match.end()]
        at = match.end()
    if not parts:
        return None
    size = len(plain.data)
    starts += range(at, size)
    ends += range(at + 1, size + 1)
    if plain.starts is not None and plain.ends is not None:
        first, last = plain.starts, plain.ends
        starts, ends = [first[start] for start in starts], [last[end - 1] for end in ends]
    return FoldedText(b"".join([*parts, plain.data[at:]]), starts, ends)


def _resolve_escape(escape: str) -> bytes:
    """Return the byte that an escape sequence stands for."""
    if escape.startswith("%"):
        return bytes([int(escape[1:], 16)])
    if escape.startswith("&"):
        return unescape(escape).encode("latin-1", "replace")[:1]
    if escape[1] in "ux" and len(escape) > 2:
        return bytes([int(escape[2:], 16)])
    return _BLANKS.get(escape[1], escape[1].encode())


class SpanPlugin(BasePlugin):
    """A plugin that reads a whole text at once, in time linear in the text's length, and stores nothing.

    It also has the interface of detect-secrets, which returns only values, while a redaction needs their positions.
    """

    @abstractmethod
    def find_ranges(self, data: bytes) -> Iterator[ByteRange]:
        """Yield the ranges of secrets in folded text; ranges may overlap."""

    def analyze_string(self, string: str) -> Generator[str, None, None]:
        """Yield the values of the secrets in a text."""
        for folded in TextFolder().list_folded_forms(string):
            for start, end in self.find_ranges(folded.data):
                span = folded.original_range(start, end)
                yield string[span.start : span.end]
