"""The splitting of a long answer into messages that fit, without breaking code fences, words or emoji."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import regex  # type: ignore[import-untyped]

from connectors.capabilities import LengthUnit

Measure = Callable[[str], int]
"""Returns the length of a text in the platform's unit, after rendering in its markup."""

MINIMUM = 64
"""The smallest accepted limit; with a smaller one, a reopened fence would leave no room for text."""
MIN_FILL = 0.4
"""The share of a chunk's length that must be used before a paragraph, line or sentence border ends it."""
MAX_MARKER = 12
MAX_INDENT = 12

FENCE = re.compile(r"([ \t]*)(`{3,}(?=[^`]*$)|~{3,})(.*)$")
MARKER = re.compile(r"[ \t]*(`{3}|~{3})")
SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*(?=[ \t])|[。！？][”’」』）]*")
BLANK_LINE = re.compile(r"[ \t]*\n")
BLANK_LINES = re.compile(rf"(?:{BLANK_LINE.pattern})+")
CHARACTER = regex.compile(r"\X")
"""One visible character, a grapheme cluster (Unicode, annex 29)."""
BLANKS = " \t\n"


def split(text: str, limit: int, measure: Measure) -> tuple[str, ...]:
    """Cut ``text`` into chunks that measure at most ``limit``, preferring paragraph, line, sentence and word borders.

    A code fence that spans chunks is closed and opened again with its info string. Only white space at the cuts is
    lost. Blank text gives no chunk; text that fits is returned unchanged. Raises ``ValueError`` for a limit below 64.
    """
    return tuple(chunks(text, limit, measure))


def chunks(text: str, limit: int, measure: Measure) -> Iterator[str]:
    """Yield the chunks of ``split`` one by one, because splitting a long text takes a while."""
    if limit < MINIMUM:
        raise ValueError(f"the limit must be at least {MINIMUM}")
    text = text.replace("\r\n", "\n")
    if not text.strip():
        return
    if measure(text) <= limit:
        yield text
        return
    yield from _Splitter(limit, measure).chunks(text)


def length(text: str, unit: LengthUnit) -> int:
    """Return the length of the text in the platform's ``unit``."""
    return len(text) + (sum(character > "\uffff" for character in text) if unit is LengthUnit.UTF16 else 0)


@dataclass(frozen=True)
class _Fence:
    """An open code fence: the line that reopens it, and the marker that closes it."""

    opening: str
    marker: str
    indent: str

    @property
    def closing(self) -> str:
        return f"\n{self.indent}{self.marker}"

    def is_closed_by(self, line: str) -> bool:
        stripped = line.strip(" \t")
        return len(stripped) >= len(self.marker) and set(stripped) == {self.marker[0]}


@dataclass(frozen=True)
class _LineBreak:
    """The end of a line at ``at``, and the fence open there; ``good`` unless the line itself opened the fence."""

    at: int
    fence: _Fence | None
    good: bool


class _Splitter:
    def __init__(self, limit: int, measure: Measure) -> None:
        self._limit = limit
        self._measure = measure

    def chunks(self, text: str) -> Iterator[str]:
        fence: _Fence | None = None
        while text.strip():
            prefix = f"{fence.opening}\n" if fence else ""
            cut, after = self._find_cut(text, fence, prefix)
            if text[:cut].strip():
                yield _build_chunk(prefix, text[:cut], after)
            text, fence = _start_next_chunk(text, cut, after)

    def _find_cut(self, text: str, fence: _Fence | None, prefix: str) -> tuple[int, _Fence | None]:
        """Return the best position to cut and the fence open there; the rendered chunk is measured as a whole."""
        window = self._count_fitting(text, prefix, 0)
        while True:
            cut = window if window == len(text) else self._find_border(text, window, fence)
            after = self._fence_after(text[:cut], fence)
            if window <= 1 or self._measure(_build_chunk(prefix, text[:cut], after)) <= self._limit:
                return max(cut, 1), after
            closing = self._measure(after.closing) if after else 0
            window = min(self._count_fitting(text, prefix, closing), window - 1)

    def _find_border(self, text: str, window: int, fence: _Fence | None) -> int:
        breaks = list(self._line_breaks(text, window, fence))
        enough = int(window * MIN_FILL)
        outside = [end.at for end in breaks if end.fence is None and end.at >= enough]
        paragraphs = [at for at in outside if BLANK_LINE.match(text, at + 1)]
        if paragraphs or outside:
            return (paragraphs or outside)[-1]
        good = [end.at for end in breaks if end.good]
        if good and self._fence_after(text[:window], fence) is not None:
            return good[-1]
        return _move_before_fence_line(text, _cut_inside_line(text, window, enough))

    def _line_breaks(self, text: str, window: int, fence: _Fence | None) -> Iterator[_LineBreak]:
        start = 0
        while (end := text.find("\n", start, window + 1)) >= 0:
            before, fence = fence, self._fence_after_line(text[start:end], fence)
            if end > 0:
                yield _LineBreak(end, fence, good=fence is None or fence is before)
            start = end + 1

    def _fence_after(self, text: str, fence: _Fence | None) -> _Fence | None:
        for line in text.split("\n"):
            fence = self._fence_after_line(line, fence)
        return fence

    def _fence_after_line(self, line: str, fence: _Fence | None) -> _Fence | None:
        if fence is not None:
            return None if fence.is_closed_by(line) else fence
        match = FENCE.match(line)
        if match is None or len(match[2]) > MAX_MARKER:
            return None
        indent = match[1] if len(match[1]) <= MAX_INDENT else ""
        opening = indent + match[2] + match[3].rstrip()
        if self._measure(opening) > self._limit // 4:
            opening = indent + match[2]
        return _Fence(opening=opening, marker=match[2], indent=indent)

    def _count_fitting(self, text: str, prefix: str, closing: int) -> int:
        """Return the number of characters from the start that fit into a chunk, at least one."""

        def is_too_long(count: int) -> bool:
            return self._measure(prefix + text[:count]) + closing > self._limit

        most = min(len(text), self._limit)
        return bisect_left(range(most), True, lo=2, key=is_too_long) - 1 if is_too_long(most) else most


def _build_chunk(prefix: str, body: str, after: _Fence | None) -> str:
    return prefix + (body.removesuffix("\n") + after.closing if after else body.rstrip(BLANKS))


def _start_next_chunk(text: str, cut: int, fence: _Fence | None) -> tuple[str, _Fence | None]:
    """Return the text of the next chunk on, and the fence open at its start."""
    rest = text[cut:]
    if fence is not None:
        rest = rest.removeprefix("\n")
        line, newline, after = rest.partition("\n")
        if not fence.is_closed_by(line):
            return rest, fence
        rest = newline + after  # the previous chunk closed the code block, so its closing fence is dropped
    at_line_end = rest.startswith("\n") or text[:cut].endswith("\n")
    drops_blank_lines = at_line_end and BLANK_LINES.match(rest)
    return BLANK_LINES.sub("", rest, count=1) if drops_blank_lines else rest.lstrip(" \t"), None


def _cut_inside_line(text: str, window: int, enough: int) -> int:
    """Return the best cut within a line after which no part of the line becomes a fence."""
    harmless = (at for at in _possible_cuts(text, window, enough) if not _makes_fence(text, at))
    return next(harmless, None) or next(_possible_cuts(text, window, enough), window)


def _possible_cuts(text: str, window: int, enough: int) -> Iterator[int]:
    """Yield cuts within a line, best first: after a sentence, else a word, else between two visible characters."""
    ends = {character.end() for character in CHARACTER.finditer(text, 0, window + 2)}
    yield from (at for at in reversed([match.end() for match in SENTENCE.finditer(text, enough, window)]) if at in ends)
    words = (at for at in range(window, 0, -1) if text[at] in BLANKS)
    yield from (at for at in words if {at, at + 1} <= ends and text[:at].strip())
    yield from (at for at in range(window, 0, -1) if at in ends)


def _makes_fence(text: str, at: int) -> bool:
    """Tell whether a cut would make the start or the rest of a line a code fence."""
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    line = text[start : end if end >= 0 else len(text)]
    left, right = line[: at - start], line[at - start :].lstrip()  # without leading blanks, which a platform may drop
    return MARKER.match(right) is not None or (MARKER.match(left) is not None and FENCE.match(line) is None)


def _move_before_fence_line(text: str, cut: int) -> int:
    """Move a cut inside a fence line to the end of the previous line, if there is one."""
    start = text.rfind("\n", 0, cut) + 1
    end = text.find("\n", cut)
    line = text[start : end if end >= 0 else len(text)]
    return start - 1 if start > 1 and FENCE.match(line) else cut
