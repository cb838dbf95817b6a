"""Where the code is in a Markdown text: fenced blocks and inline spans, as CommonMark has them."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

_PREFIX = r"^[^\S\n]*+(?:>[^\S\n]*)*+"
_MARKERS = r"(?:(?:[-*+]|\d{1,9}[.)])[^\S\n]+)*+"
_FENCE = re.compile(rf"{_PREFIX}{_MARKERS}(`{{3,}}+(?=[^`\n]*$)|~{{3,}}+)", re.MULTILINE)
_CLOSING = re.compile(rf"{_PREFIX}(`{{3,}}+|~{{3,}}+)[^\S\n]*$", re.MULTILINE)
_BLOCK = re.compile(
    r"^[^\S\n]*(?:$|>|#{1,6}(?:\s|$)|[-*+](?:\s|$)|\d{1,9}[.)](?:\s|$)|`{3,}+[^`\n]*$|~{3})", re.MULTILINE
)
_RUN = re.compile("`+")


class Span(NamedTuple):
    """A stretch of a text, from ``start`` up to ``end``."""

    start: int
    end: int


def spans(text: str) -> list[Span]:
    """Return every stretch that is code when what stands before it is not, by their starts; they may overlap.

    Read from the left: the first one is code, and the next that begins after its end, and so on. A reader who begins
    anew in the middle of the text looks only at those that begin there or later. A fence may stand in a quote or a
    list and needs no closing; a code span ends within its paragraph, with as many backticks as it began with. Lines
    that are merely indented are no code: models indent what they list. The time grows with the length of the text.
    """
    fences = list(_fenced(text))
    begun = {fence.start for fence in fences}
    return sorted((*fences, *(span for span in _inline(text) if span.start not in begun)))


def _fenced(text: str) -> Iterator[Span]:
    """Find each fence with the first line after it that closes it: the same character, at least as often."""
    closings = {character: _Closings() for character in "`~"}
    waiting = list(_CLOSING.finditer(text))
    for opening in reversed(list(_FENCE.finditer(text))):
        while waiting and waiting[-1].start() > opening.start():
            line = waiting.pop()
            closings[line[1][0]].prepend(line.end(), len(line[1]))
        yield Span(opening.start(1), closings[opening[1][0]].first(len(opening[1])) or len(text))


class _Closings:
    """The lines that close one kind of fence, told from the last to the first; a nearer and longer one hides others."""

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._ends: list[int] = []

    def prepend(self, end: int, length: int) -> None:
        """Take a line that stands before all others."""
        while self._lengths and -self._lengths[-1] <= length:
            self._lengths.pop()
            self._ends.pop()
        self._lengths.append(-length)
        self._ends.append(end)

    def first(self, length: int) -> int | None:
        """Return where the first line ends that is at least as long."""
        index = bisect_right(self._lengths, -length)
        return self._ends[index - 1] if index else None


def _inline(text: str) -> Iterator[Span]:
    """Find each run of backticks with the next run of the same length in its paragraph."""
    blocks = [block.start() for block in _BLOCK.finditer(text)]
    nearest: dict[int, int] = {}
    for run in reversed(list(_RUN.finditer(text))):
        start = run.start() + _escaped(text, run.start())
        length = run.end() - start
        closing = nearest.get(length)
        if length and closing is not None and not _between(blocks, start, closing):
            yield Span(start, closing + length)
        nearest[run.end() - run.start()] = run.start()


def _between(blocks: list[int], start: int, end: int) -> bool:
    index = bisect_right(blocks, start)
    return index < len(blocks) and blocks[index] <= end


def _escaped(text: str, position: int) -> int:
    """Return 1 if a backslash that is none itself stands before the position, else 0."""
    first = position
    while first > 0 and text[first - 1] == "\\":
        first -= 1
    return (position - first) % 2
