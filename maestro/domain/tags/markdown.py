"""An answer as Markdown: where its code is, and its text without the parts that are taken out."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
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

_WHITESPACE = " \t\r\f\v"
_CLINGING = tuple(",.;:!?)]}…»”’，。；：！？、）】」』")
_MARKER = re.compile(r"\s*(?:[-*+>]|\d{1,9}[.)])")
_BACKTICKS = re.compile("`+")
_MANY_BREAKS = re.compile(r"\n{3,}")


class CodeSpan(NamedTuple):
    """A stretch of a text, from ``start`` up to ``end``."""

    start: int
    end: int


def code_spans(text: str) -> list[CodeSpan]:
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


def _fenced(text: str) -> Iterator[CodeSpan]:
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
        yield CodeSpan(opening.start(1), min(closed or len(text), lines.end_of_container(opening)))


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


def _inline(text: str) -> Iterator[CodeSpan]:
    """Find each run of backticks with the next run of the same length in its paragraph."""
    blocks = [block.start() for block in _BLOCK.finditer(text)]
    nearest: dict[int, int] = {}
    for run in reversed(list(_RUN.finditer(text))):
        start = run.start() + _escaped(text, run.start())
        length = run.end() - start
        closing = nearest.get(length)
        if length and closing is not None and not _between(blocks, start, closing):
            yield CodeSpan(start, closing + length)
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


class VisibleText:
    """Takes a text piece by piece, from the left, with ``cut`` where something was taken out.

    What stood on both sides of a cut is joined by one blank, or by nothing before a stop. A line that held nothing
    else, the mark of a list or a quotation apart, goes altogether. More than one empty line becomes one. Code stays
    as it is.
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[bool, str]] = []
        self._line = 0
        self._cut = False
        self.is_changed = False

    def cut(self) -> None:
        """Say that something is missing here."""
        self._cut = self.is_changed = True

    def show(self, tag: str) -> None:
        """Take a tag that is shown as code: within its line, or as a block where it has several lines."""
        self.is_changed = True
        is_block = "\n" in tag
        longest = max(map(len, _BACKTICKS.findall(tag)), default=0)
        fence = "`" * max(longest + 1, 3 if is_block else 1)
        if is_block:
            self.write("\n")
            self.write_code(f"{fence}\n{tag}\n{fence}")
            self.write("\n")
        else:
            self.write_code(f"{fence} {tag} {fence}" if longest else f"{fence}{tag}{fence}")

    def write(self, text: str) -> None:
        """Take text that is no code."""
        if self._cut:
            text = text.lstrip(_WHITESPACE)
            if not text:
                return
            text = self._join(text)
        head, newline, tail = text.rpartition("\n")
        if newline:
            self._pieces.append((False, head + newline))
            self._line = len(self._pieces)
        if tail:
            self._pieces.append((False, tail))

    def write_code(self, code: str) -> None:
        """Take code, which nothing is taken out of."""
        if self._cut:
            self._join(code)
        self._pieces.append((True, code))

    def finished(self) -> str:
        """Return what is left."""
        parts: list[str] = []
        for is_code, pieces in groupby(self._pieces, itemgetter(0)):
            text = "".join(piece for _, piece in pieces)
            parts.append(text if is_code else _MANY_BREAKS.sub("\n\n", text))
        return "".join(parts).strip()

    def _join(self, following: str) -> str:
        """Close a cut: return what is left of the text that follows."""
        self._cut = False
        if following.startswith("\n"):
            self._trim()
            if self._is_empty():
                del self._pieces[self._line :]
                return following[1:]
        elif any(not self._pieces[number][1].isspace() for number in reversed(range(self._line, len(self._pieces)))):
            self._trim()
            self._pieces.append((False, "" if following.startswith(_CLINGING) else " "))
        return following

    def _trim(self) -> None:
        """Take the blanks from the end of the present line."""
        while len(self._pieces) > self._line and not self._pieces[-1][0]:
            rest = self._pieces.pop()[1].rstrip(_WHITESPACE)
            if rest:
                self._pieces.append((False, rest))
                return

    def _is_empty(self) -> bool:
        """Say whether nothing but the mark of a list or a quotation stands on the present line."""
        pieces = len(self._pieces) - self._line
        return pieces == 0 or (pieces == 1 and _MARKER.fullmatch(self._pieces[-1][1]) is not None)
