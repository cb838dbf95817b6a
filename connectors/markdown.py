"""The splitting of long answers into chunks that fit a platform, and the rendering of Markdown in its markup.

Rendering keeps each line break, and only adds fences around a table, so a text can be split before or after rendering.
The library markdown-it is not used: it drops blank lines and indentation and took six to nine times as long. A long
answer is rendered about a dozen times for each chunk while it is split."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import regex  # type: ignore[import-untyped]

from connectors.base import LengthUnit

Measure = Callable[[str], int]
"""A function that renders a text in the platform's markup and returns the length in the platform's unit."""

MINIMUM = 64
"""The smallest accepted length of a chunk; below it, a reopened code fence would leave no room for text."""
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

HEADING = re.compile(r" {0,3}#{1,6}[ \t]+")
BULLET = re.compile(r"([ \t]*)[-*+][ \t]+(?=\S)")
QUOTE = re.compile(r" {0,3}>[> \t]*")
RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")

SPAN = "{1,400}"
"""A quantifier for the characters between an opening and a closing mark; the limit keeps each search short."""
_CODE = rf"(?<!`)(?P<ticks>`++)(?P<code>.{SPAN}?)(?<!`)(?P=ticks)(?!`)"
_URL = r"(?:https?://|mailto:)"
_LINK = (
    rf"!?\[(?P<label>[^\[\]\n]{SPAN}?)\]"
    rf"\((?P<url>{_URL}[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)(?:[ \t]+\"[^\"\n]{SPAN}?\")?\)"
)
_ANGLED = rf"<(?P<angled>{_URL}[^\s<>]+)>"
_BOTH = rf"\*\*\*(?=\S)(?P<both>.{SPAN}?)(?<=\S)\*\*\*"
_BOLD = rf"\*\*(?=\S)(?P<bold>.{SPAN}?)(?<=\S)\*\*"
_BOLD_UNDERSCORES = rf"(?<!\w)__(?=\S)(?P<bold2>.{SPAN}?)(?<=\S)__(?!\w)"
_STRUCK = rf"~~(?=\S)(?P<struck>.{SPAN}?)(?<=\S)~~"
_ITALIC = rf"(?<![\w*])\*(?=[^\s*])(?P<italic>[^*\n]{SPAN}?)(?<=[^\s*])\*(?![\w*])"
_ESCAPED = r"\\(?P<literal>[!-/:-@\[-`{-~])"
LEAF_PATTERNS = (_ESCAPED, _CODE, _LINK, _ANGLED)
"""The patterns of inline elements that contain no other element."""
MARK_PATTERNS = (_BOTH, _BOLD, _BOLD_UNDERSCORES, _STRUCK, _ITALIC)
"""The patterns of marked text, which may contain other elements."""
INLINE = re.compile("|".join((*LEAF_PATTERNS, *MARK_PATTERNS)))

SHORT_MARKS = {"both": ("*_", "_*"), "bold": ("*", "*"), "struck": ("~", "~"), "italic": ("_", "_")}
"""The marks of Slack and WhatsApp, one character each."""

TICKS = "```"
ZERO_WIDTH = "\u200b"
SEPARATED_TICKS = f"`{ZERO_WIDTH}`{ZERO_WIDTH}`"
"""Three backticks that neither open nor close a code block."""

_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$")
_COLUMNS = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


def split_markdown(text: str, limit: int, measure: Measure) -> tuple[str, ...]:
    """Cut ``text`` into chunks that measure at most ``limit``, preferring paragraph, line, sentence and word borders.

    A code fence that spans chunks is closed and opened again with its info string. Only white space at the cuts is
    lost. Blank text gives no chunk; text that fits is returned unchanged. Raises ``ValueError`` for a limit below 64.
    """
    return tuple(split_lazily(text, limit, measure))


def split_lazily(text: str, limit: int, measure: Measure) -> Iterator[str]:
    """Yield the chunks of ``split_markdown`` one by one, because splitting a long text takes a while."""
    if limit < MINIMUM:
        raise ValueError(f"the limit must be at least {MINIMUM}")
    text = text.replace("\r\n", "\n")
    if not text.strip():
        return
    if measure(text) <= limit:
        yield text
        return
    yield from _Splitter(limit, measure).split_chunks(text)


def text_length(text: str, unit: LengthUnit) -> int:
    """Return the length of the text in the platform's ``unit``."""
    return len(text) + (sum(character > "\uffff" for character in text) if unit is LengthUnit.UTF16 else 0)


@dataclass(frozen=True)
class _Fence:
    """An open code fence: the line that reopens it, and the marker that closes it."""

    opening: str
    marker: str
    indent: str

    @property
    def closing_line(self) -> str:
        return f"\n{self.indent}{self.marker}"

    def is_closed_by(self, line: str) -> bool:
        stripped = line.strip(" \t")
        return len(stripped) >= len(self.marker) and set(stripped) == {self.marker[0]}


@dataclass(frozen=True)
class _LineBreak:
    """A line end at the position ``at``, and the code fence open there; ``good`` unless this line opened that fence."""

    at: int
    fence: _Fence | None
    good: bool


class _Splitter:
    def __init__(self, limit: int, measure: Measure) -> None:
        self._limit = limit
        self._measure = measure

    def split_chunks(self, text: str) -> Iterator[str]:
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
            closing = self._measure(after.closing_line) if after else 0
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
        """Return how many characters from the start of ``text`` fit into a chunk, at least one."""

        def is_too_long(count: int) -> bool:
            return self._measure(prefix + text[:count]) + closing > self._limit

        most = min(len(text), self._limit)
        return bisect_left(range(most), True, lo=2, key=is_too_long) - 1 if is_too_long(most) else most


def _build_chunk(prefix: str, body: str, after: _Fence | None) -> str:
    return prefix + (body.removesuffix("\n") + after.closing_line if after else body.rstrip(BLANKS))


def _start_next_chunk(text: str, cut: int, fence: _Fence | None) -> tuple[str, _Fence | None]:
    """Return the text after the cut, and the code fence that is open at its start."""
    rest = text[cut:]
    if fence is not None:
        rest = rest.removeprefix("\n")
        line, newline, after = rest.partition("\n")
        if not fence.is_closed_by(line):
            return rest, fence
        rest = newline + after  # The previous chunk already closed the code block, so the closing fence is dropped.
    at_line_end = rest.startswith("\n") or text[:cut].endswith("\n")
    drops_blank_lines = at_line_end and BLANK_LINES.match(rest)
    return BLANK_LINES.sub("", rest, count=1) if drops_blank_lines else rest.lstrip(" \t"), None


def _cut_inside_line(text: str, window: int, enough: int) -> int:
    """Return the best cut within a line that turns neither half of the line into a code fence."""
    harmless = (at for at in _possible_cuts(text, window, enough) if not _makes_fence(text, at))
    return next(harmless, None) or next(_possible_cuts(text, window, enough), window)


def _possible_cuts(text: str, window: int, min_length: int) -> Iterator[int]:
    """Yield cuts within a line, best first: after a sentence, else a word, else between two visible characters."""
    ends = {character.end() for character in CHARACTER.finditer(text, 0, window + 2)}
    sentences = [match.end() for match in SENTENCE.finditer(text, min_length, window)]
    yield from (at for at in reversed(sentences) if at in ends)
    words = (at for at in range(window, 0, -1) if text[at] in BLANKS)
    yield from (at for at in words if {at, at + 1} <= ends and text[:at].strip())
    yield from (at for at in range(window, 0, -1) if at in ends)


def _makes_fence(text: str, at: int) -> bool:
    """Tell whether a cut turns one half of its line into a code fence."""
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    line = text[start : end if end >= 0 else len(text)]
    left, right = line[: at - start], line[at - start :].lstrip()  # A platform may drop leading blanks.
    return MARKER.match(right) is not None or (MARKER.match(left) is not None and FENCE.match(line) is None)


def _move_before_fence_line(text: str, cut: int) -> int:
    """Move a cut inside a fence line to the end of the previous line, if there is one."""
    start = text.rfind("\n", 0, cut) + 1
    end = text.find("\n", cut)
    line = text[start : end if end >= 0 else len(text)]
    return start - 1 if start > 1 and FENCE.match(line) else cut


@dataclass(frozen=True)
class MarkdownDialect:
    """The renderers of a platform's markup, by Markdown element.

    ``plain`` renders text, ``literal`` an escaped mark, ``code`` inline code, ``block`` a line of a code block, and
    ``link`` a label, which may be blank, and an address. ``around`` holds the marks before and after ``bold``,
    ``italic``, ``both`` or ``struck`` text, and ``inline`` is the pattern of inline elements.
    """

    plain: Callable[[str], str]
    literal: Callable[[str], str]
    code: Callable[[str], str]
    block: Callable[[str], str]
    link: Callable[[str, str], str]
    around: Mapping[str, tuple[str, str]]
    inline: re.Pattern[str] = INLINE


def render_lines(text: str, dialect: MarkdownDialect) -> Iterator[str]:
    """Yield the rendered lines of a text, for platforms with three-backtick fences and ``>`` quotes."""
    marker = ""
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if marker:
            closes = fence is not None and fence[2].startswith(marker) and not fence[3].strip()
            yield TICKS if closes else dialect.block(line)
            marker = "" if closes else marker
        elif fence is not None:
            marker = fence[2]
            yield TICKS
        else:
            quote = QUOTE.match(line)
            yield f"> {render_line(line[quote.end() :], dialect)}" if quote else render_line(line, dialect)


def render_inline(text: str, dialect: MarkdownDialect) -> str:
    """Return a line with its inline elements rendered in the platform's markup."""
    parts, at = [], 0
    for element in dialect.inline.finditer(text):
        parts += [dialect.plain(text[at : element.start()]), _render_element(element, dialect)]
        at = element.end()
    return "".join([*parts, dialect.plain(text[at:])])


def render_blocks(source: Sequence[str], line: Callable[[str], str] = str) -> Iterator[Sequence[str]]:
    """Yield a text's blocks: each code block, each table as a code block, and every other line by itself.

    ``line`` renders the lines that are not code.
    """
    at = 0
    while at < len(source):
        end = find_code_end(source, at) or find_table_end(source, at)
        if end and FENCE.match(source[at]):
            yield source[at:end]
        elif end:
            yield [TICKS, *(row.strip() for row in source[at:end]), TICKS]
        else:
            yield [line(source[at])]
        at = end or at + 1


def render_line(line: str, dialect: MarkdownDialect) -> str:
    """Return a line outside code, quotes and tables in the platform's markup."""
    if RULE.match(line):
        return "———"
    heading = HEADING.match(line)
    if heading is not None:
        plain = line[heading.end() :].rstrip().rstrip("#").rstrip().replace("**", "").replace("__", "")
        before, after = dialect.around["bold"]
        return f"{before}{render_inline(plain, dialect)}{after}" if plain else ""
    bullet = BULLET.match(line)
    return f"{bullet[1]}• {render_inline(line[bullet.end() :], dialect)}" if bullet else render_inline(line, dialect)


def _render_element(element: re.Match[str], dialect: MarkdownDialect) -> str:
    kind = element.lastgroup or ""  # The last group of the match names the kind of the Markdown element.
    match kind:
        case "literal":
            return dialect.literal(element[kind])
        case "code":
            return dialect.code(element[kind].strip() or element[kind])
        case "url":
            return dialect.link(element["label"], element[kind])
        case "angled" | "bare":
            return dialect.link("", element[kind])
    before, after = dialect.around[kind.removesuffix("2")]
    return f"{before}{render_inline(element[kind], dialect)}{after}"


def find_code_end(source: Sequence[str], start: int) -> int:
    """Return the index after the code block that begins at line ``start``, even if unclosed; 0 if none begins there."""
    opening = FENCE.match(source[start])
    if opening is None:
        return 0
    marker = opening[2]
    for at in range(start + 1, len(source)):
        line = source[at].strip(" \t")
        if len(line) >= len(marker) and set(line) == {marker[0]}:
            return at + 1
    return len(source)


def find_table_end(source: Sequence[str], start: int) -> int:
    """Return the index of the line after the table that begins at line ``start``; 0 if none begins there."""
    is_table = start + 1 < len(source) and _ROW.match(source[start]) and "-" in source[start + 1]
    if not is_table or not _COLUMNS.match(source[start + 1]):
        return 0
    end = start + 2
    while end < len(source) and _ROW.match(source[end]):
        end += 1
    return end
