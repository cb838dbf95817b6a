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
_QUOTE = re.compile(r"[^\S\n]*>")
_BLANKS = re.compile(r"[^\S\n]*")


class Span(NamedTuple):
    """A stretch of a text, from ``start`` up to ``end``."""

    start: int
    end: int


def spans(text: str) -> list[Span]:
    """Return every stretch that is code when what stands before it is not, by their starts; they may overlap.

    Read from the left: the first one is code, and the next that begins after its end, and so on. A reader who begins
    anew in the middle of the text looks only at those that begin there or later. A fence that nothing closes ends with
    the quote or the list's entry it began in, or with the text; a code span ends within its paragraph, with as many
    backticks as it began with. Lines that are merely indented are no code: models indent what they list. The time
    grows with the length of the text.
    """
    fences = list(_fenced(text))
    begun = {fence.start for fence in fences}
    return sorted((*fences, *(span for span in _inline(text) if span.start not in begun)))


def _fenced(text: str) -> Iterator[Span]:
    """Find each fence with the line that ends it: the first after it that closes it, or that leaves its quote or list.

    A closing line has the same character at least as often, and stands in a quote if the fence does.
    """
    closings = {(character, quoted): _Closings() for character in "`~" for quoted in (False, True)}
    waiting = list(_CLOSING.finditer(text))
    lines = _Lines(text)
    for opening in reversed(list(_FENCE.finditer(text))):
        while waiting and waiting[-1].start() > opening.start():
            line = waiting.pop()
            closings[line[1][0], _quoted(line)].prepend(line.end(), len(line[1]))
        closed = closings[opening[1][0], _quoted(opening)].first(len(opening[1]))
        yield Span(opening.start(1), min(closed or len(text), lines.end_of_container(opening)))


def _quoted(fence: re.Match[str]) -> bool:
    return ">" in fence.string[fence.start() : fence.start(1)]


class _Lines:
    """The lines of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._unquoted = [start for start in self._starts if _QUOTE.match(text, start) is None]

    def end_of_container(self, fence: re.Match[str]) -> int:
        """Return where the quote or the list's entry ends that a fence began in; the end of the text without one."""
        if _quoted(fence):
            return self._before(self._unquoted, bisect_right(self._unquoted, fence.start()))
        prefix = self._text[fence.start() : fence.start(1)]
        number = bisect_right(self._starts, fence.start())
        if prefix.strip():
            while number < len(self._starts) and not self._is_outdented(self._starts[number], len(prefix)):
                number += 1
            return self._before(self._starts, number)
        return len(self._text)

    def _before(self, starts: list[int], number: int) -> int:
        return starts[number] - 1 if number < len(starts) else len(self._text)

    def _is_outdented(self, start: int, column: int) -> bool:
        blanks = _BLANKS.match(self._text, start, start + column)
        end = blanks.end() if blanks else start
        return end < start + column and self._text[end : end + 1] not in ("", "\n")


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
