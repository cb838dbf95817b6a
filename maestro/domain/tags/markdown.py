"""Markdown of an answer: the positions of its code, and its visible text after tags were removed."""

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
_QUOTE = re.compile(r"[^\S\n]*>")
_BLANKS = re.compile(r"[^\S\n]*")

_WHITESPACE = " \t\r\f\v"
_CLINGING = tuple(",.;:!?)]}…»”’，。；：！？、）】」』")


class CodeSpan(NamedTuple):
    """A range of a text, from ``start`` up to but not including ``end``."""

    start: int
    end: int


def code_spans(text: str) -> list[CodeSpan]:
    """Return every range that is code unless it begins within earlier code, sorted by start; ranges may overlap.

    A caller reads the ranges from the left: the first range is code, then the next one that begins after its end, and
    so on. A parser that continues in the middle of the text considers only the ranges that begin there or later. A
    fence without a closing line ends with its quotation, its list item or the text. An inline span ends within its
    paragraph, with as many backticks as it began with. Indented lines are not code, because models indent the contents
    of lists. The time grows about linearly with the length of the text.
    """
    fences = list(_fenced_blocks(text))
    begun = {fence.start for fence in fences}
    return sorted((*fences, *(span for span in _inline_spans(text) if span.start not in begun)))


def _fenced_blocks(text: str) -> Iterator[CodeSpan]:
    """Yield each fenced block; it ends with its closing line, its quotation or its list item.

    A closing line repeats the fence's character at least as often, and is in a quotation if the fence is.
    """
    closings = {(character, quoted): _Closings() for character in "`~" for quoted in (False, True)}
    waiting = list(_CLOSING.finditer(text))
    lines = _Lines(text)
    for opening in reversed(list(_FENCE.finditer(text))):
        while waiting and waiting[-1].start() > opening.start():
            line = waiting.pop()
            closings[line[1][0], _is_quoted(line)].add_first(line.end(), len(line[1]))
        closed = closings[opening[1][0], _is_quoted(opening)].first_end(len(opening[1]))
        yield CodeSpan(opening.start(1), min(closed or len(text), lines.end_of_container(opening)))


def _is_quoted(fence: re.Match[str]) -> bool:
    return ">" in fence.string[fence.start() : fence.start(1)]


class _Lines:
    """The lines of a text, searched for the end of a quotation or a list item."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._unquoted = [start for start in self._starts if _QUOTE.match(text, start) is None]

    def end_of_container(self, fence: re.Match[str]) -> int:
        """Return the end of the quotation or list item in which a fence began; the end of the text without one."""
        if _is_quoted(fence):
            return self._end_before(self._unquoted, bisect_right(self._unquoted, fence.start()))
        prefix = self._text[fence.start() : fence.start(1)]
        if not prefix.strip():
            return len(self._text)
        number = bisect_right(self._starts, fence.start())
        while number < len(self._starts) and not self._is_outdented(self._starts[number], len(prefix)):
            number += 1
        return self._end_before(self._starts, number)

    def _end_before(self, starts: list[int], number: int) -> int:
        return starts[number] - 1 if number < len(starts) else len(self._text)

    def _is_outdented(self, start: int, column: int) -> bool:
        blanks = _BLANKS.match(self._text, start, start + column)
        end = blanks.end() if blanks else start
        return end < start + column and self._text[end : end + 1] not in ("", "\n")


class _Closings:
    """The closing lines of one kind of fence, added from last to first.

    A line is dropped when an earlier line of at least its length is added, because no search can return it any more.
    """

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._ends: list[int] = []

    def add_first(self, end: int, length: int) -> None:
        """Add a closing line that precedes all others."""
        while self._lengths and -self._lengths[-1] <= length:
            self._lengths.pop()
            self._ends.pop()
        self._lengths.append(-length)
        self._ends.append(end)

    def first_end(self, length: int) -> int | None:
        """Return the end of the first line with at least ``length`` fence characters, None without one."""
        index = bisect_right(self._lengths, -length)
        return self._ends[index - 1] if index else None


def _inline_spans(text: str) -> Iterator[CodeSpan]:
    """Yield the range from each run of backticks to the next run of equal length in its paragraph."""
    blocks = [block.start() for block in _BLOCK.finditer(text)]
    nearest: dict[int, int] = {}
    for run in reversed(list(re.finditer(r"(?<!\\)(\\*+)(`++)", text))):
        start = run.start(2) + len(run[1]) % 2  # An odd number of backslashes escapes the first backtick.
        length = run.end() - start
        closing = nearest.get(length)
        if length and closing is not None:
            block = bisect_right(blocks, start)
            if block == len(blocks) or blocks[block] > closing:
                yield CodeSpan(start, closing + length)
        nearest[len(run[2])] = run.start(2)


class VisibleText:
    """A builder of visible text: it takes text from left to right, with ``mark_removal`` where a part was removed.

    The text on both sides of a cut is joined by one space, or by nothing before punctuation. A line that contains only
    cuts, or a list or quotation mark besides, is removed. Several empty lines become one. Code is unchanged.
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[bool, str]] = []
        self._line = 0
        self._cut = False
        self.is_changed = False

    def mark_removal(self) -> None:
        """Record that a part was removed at the current position."""
        self._cut = self.is_changed = True

    def write_tag(self, tag: str) -> None:
        """Add a tag as code: inline, or as a fenced block if it has several lines."""
        self.is_changed = True
        is_block = "\n" in tag
        longest = max(map(len, re.findall("`+", tag)), default=0)
        fence = "`" * max(longest + 1, 3 if is_block else 1)
        if is_block:
            self.write_text("\n")
            self.write_code(f"{fence}\n{tag}\n{fence}")
            self.write_text("\n")
        else:
            self.write_code(f"{fence} {tag} {fence}" if longest else f"{fence}{tag}{fence}")

    def write_text(self, text: str) -> None:
        """Add text that is not code."""
        if self._cut:
            text = text.lstrip(_WHITESPACE)
            if not text:
                return
            text = self._join_cut(text)
        head, newline, tail = text.rpartition("\n")
        if newline:
            self._pieces.append((False, head + newline))
            self._line = len(self._pieces)
        if tail:
            self._pieces.append((False, tail))

    def write_code(self, code: str) -> None:
        """Add code, which stays unchanged."""
        if self._cut:
            self._join_cut(code)
        self._pieces.append((True, code))

    def build_text(self) -> str:
        parts: list[str] = []
        for is_code, pieces in groupby(self._pieces, itemgetter(0)):
            text = "".join(piece for _, piece in pieces)
            parts.append(text if is_code else re.sub(r"\n{3,}", "\n\n", text))
        return "".join(parts).strip()

    def _join_cut(self, following: str) -> str:
        """Join the text before and after a cut; return the text after it, less a line break that the cut removes."""
        self._cut = False
        if following.startswith("\n"):
            self._trim_line()
            line = self._pieces[self._line :]
            if not line or (len(line) == 1 and re.fullmatch(r"\s*(?:[-*+>]|\d{1,9}[.)])", line[0][1])):
                del self._pieces[self._line :]
                return following[1:]
        elif any(not self._pieces[number][1].isspace() for number in reversed(range(self._line, len(self._pieces)))):
            self._trim_line()
            self._pieces.append((False, "" if following.startswith(_CLINGING) else " "))
        return following

    def _trim_line(self) -> None:
        while len(self._pieces) > self._line and not self._pieces[-1][0]:
            rest = self._pieces.pop()[1].rstrip(_WHITESPACE)
            if rest:
                self._pieces.append((False, rest))
                return
