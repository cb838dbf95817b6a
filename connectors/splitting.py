"""Splits a long answer into messages a platform takes, without breaking code fences, words or emoji."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from connectors.base import LengthUnit

MINIMUM = 64
"""The smallest limit; below it a reopened fence would leave no room for text."""
ENOUGH = 0.4
"""A border is worth taking when this share of the chunk is full."""
MAX_MARKER = 12
MAX_INDENT = 12

FENCE = re.compile(r"([ \t]*)(`{3,}(?=[^`]*$)|~{3,})(.*)$")
SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*(?=[ \t])|[。！？][”’」』）]*")
BLANK_LINES = re.compile(r"(?:[ \t]*\n)+")
ZERO_WIDTH_JOINER = "\u200d"
BLANKS = " \t\n"


def split(text: str, limit: int, unit: LengthUnit) -> tuple[str, ...]:
    """Cut ``text`` into chunks of at most ``limit`` units, preferring paragraph, line, sentence and word borders.

    A code fence that spans chunks is closed and opened again with its info string. Nothing is lost but blanks at the
    cuts. Blank text gives no chunk; text that fits is returned as it is. Raises ``ValueError`` below 64 units.
    """
    if limit < MINIMUM:
        raise ValueError(f"the limit must be at least {MINIMUM}")
    text = text.replace("\r\n", "\n")
    if not text.strip():
        return ()
    if length(text, unit) <= limit:
        return (text,)
    return tuple(_Splitter(limit, unit).chunks(text))


def length(text: str, unit: LengthUnit) -> int:
    """Return how long a platform that counts in ``unit`` finds the text."""
    return len(text) + (sum(character > "\uffff" for character in text) if unit is LengthUnit.UTF16 else 0)


@dataclass(frozen=True)
class _Fence:
    """An open code fence: how it is opened again, and what closes it."""

    opening: str
    marker: str
    indent: str

    @property
    def closing(self) -> str:
        return f"\n{self.indent}{self.marker}"

    def closed_by(self, line: str) -> bool:
        stripped = line.strip(" \t")
        return len(stripped) >= len(self.marker) and set(stripped) == {self.marker[0]}


@dataclass(frozen=True)
class _Break:
    """The end of a line at ``at``, with the fence that is open there; ``good`` unless it only just opened."""

    at: int
    fence: _Fence | None
    good: bool


class _Splitter:
    def __init__(self, limit: int, unit: LengthUnit) -> None:
        self._limit = limit
        self._unit = unit

    def chunks(self, text: str) -> Iterator[str]:
        fence: _Fence | None = None
        while text.strip():
            prefix = f"{fence.opening}\n" if fence else ""
            cut, after = self._cut(text, fence, self._limit - self._length(prefix))
            body = text[:cut]
            if body.strip():
                yield prefix + (body.removesuffix("\n") + after.closing if after else body.rstrip(BLANKS))
            text, fence = _carry(text, cut, after)

    def _cut(self, text: str, fence: _Fence | None, budget: int) -> tuple[int, _Fence | None]:
        """Return where to cut and the fence open there; what closes it fits into the budget too."""
        window = self._fitting(text, budget)
        while True:
            cut = window if window == len(text) else self._border(text, window, fence)
            after = self._state(text[:cut], fence)
            closing = self._length(after.closing) if after else 0
            if self._length(text[:cut]) + closing <= budget:
                return cut, after
            window = min(self._fitting(text, budget - closing), window - 1)

    def _border(self, text: str, window: int, fence: _Fence | None) -> int:
        breaks = list(self._breaks(text, window, fence))
        enough = int(window * ENOUGH)
        outside = [b.at for b in breaks if b.fence is None and b.at >= enough]
        paragraphs = [at for at in outside if BLANK_LINES.match(text, at + 1)]
        if paragraphs or outside:
            return (paragraphs or outside)[-1]
        good = [b.at for b in breaks if b.good]
        if good and self._state(text[:window], fence) is not None:
            return good[-1]
        return _outside_fence_line(text, _inside_line(text, window, enough))

    def _breaks(self, text: str, window: int, fence: _Fence | None) -> Iterator[_Break]:
        start = 0
        while (end := text.find("\n", start, window + 1)) >= 0:
            before, fence = fence, self._after_line(text[start:end], fence)
            if end > 0:
                yield _Break(end, fence, good=fence is None or fence is before)
            start = end + 1

    def _state(self, text: str, fence: _Fence | None) -> _Fence | None:
        for line in text.split("\n"):
            fence = self._after_line(line, fence)
        return fence

    def _after_line(self, line: str, fence: _Fence | None) -> _Fence | None:
        if fence is not None:
            return None if fence.closed_by(line) else fence
        found = FENCE.match(line)
        if found is None or len(found[2]) > MAX_MARKER:
            return None
        indent = found[1] if len(found[1]) <= MAX_INDENT else ""
        opening = indent + found[2] + found[3].rstrip()
        if self._length(opening) > self._limit // 4:
            opening = indent + found[2]
        return _Fence(opening=opening, marker=found[2], indent=indent)

    def _fitting(self, text: str, budget: int) -> int:
        """Return how many characters from the start fit into the budget."""
        end = min(len(text), budget)
        while self._length(text[:end]) > budget:
            end -= -(-(self._length(text[:end]) - budget) // 2)
        return end

    def _length(self, text: str) -> int:
        return length(text, self._unit)


def _carry(text: str, cut: int, fence: _Fence | None) -> tuple[str, _Fence | None]:
    """Return what the next chunk starts with, and the fence open there."""
    rest = text[cut:]
    if fence is not None:
        rest = rest.removeprefix("\n")
        line, newline, after = rest.partition("\n")
        if not fence.closed_by(line):
            return rest, fence
        rest = newline + after  # the chunk before is closed already: no empty block
    at_line_end = rest.startswith("\n") or text[:cut].endswith("\n")
    return (BLANK_LINES.sub("", rest, count=1) if at_line_end and BLANK_LINES.match(rest) else _unspaced(rest)), None


def _unspaced(rest: str) -> str:
    return rest.lstrip(" \t")


def _inside_line(text: str, window: int, enough: int) -> int:
    """Return the best place within a line: after a sentence, else a word, else between two characters."""
    sentences = [found.end() for found in SENTENCE.finditer(text, enough, window)]
    for at in reversed(sentences):
        if not joined(text, at):
            return at
    for at in range(window, 0, -1):
        if text[at] in BLANKS and not joined(text, at + 1) and text[:at].strip():
            return at
    for at in range(window, 0, -1):
        if not joined(text, at):
            return at
    return window


def _outside_fence_line(text: str, cut: int) -> int:
    """Move a cut that would tear a fence line apart to the end of the line before, where there is one."""
    start = text.rfind("\n", 0, cut) + 1
    end = text.find("\n", cut)
    line = text[start : end if end >= 0 else len(text)]
    return start - 1 if start > 1 and FENCE.match(line) else cut


def joined(text: str, at: int) -> bool:
    """Tell whether the characters on both sides of ``at`` are parts of what a reader sees as one."""
    if not 0 < at < len(text):
        return False
    left, right = text[at - 1], text[at]
    if ZERO_WIDTH_JOINER in (left, right) or left + right == "\r\n":
        return True
    if _is_flag(left) and _is_flag(right):
        return _flags_before(text, at) % 2 == 1
    return unicodedata.category(right) in ("Mn", "Mc", "Me") or _extends(right)


def _extends(character: str) -> bool:
    """Tell whether it changes the one before: skin tones, flag tags, Hangul vowels and finals."""
    return (
        "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or "\u1160" <= character <= "\u11ff"
    )


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    count = 0
    while count < at and _is_flag(text[at - 1 - count]):
        count += 1
    return count
