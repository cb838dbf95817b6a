"""The rendering of Markdown from models for platforms with another markup.

Each line stays one line, except for fences added around a table, so that a text can be split before or after rendering.

The scanner is not markdown-it, which keeps neither blank lines nor indentation and took six to nine times as long: a
long answer is rendered about a dozen times per chunk while it is split.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors.splitting import FENCE

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
    """Return the inline elements of a line in the platform's markup."""
    parts, at = [], 0
    for element in dialect.inline.finditer(text):
        parts += [dialect.plain(text[at : element.start()]), _render_element(element, dialect)]
        at = element.end()
    return "".join([*parts, dialect.plain(text[at:])])


def blocks(source: Sequence[str], line: Callable[[str], str] = str) -> Iterator[Sequence[str]]:
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
    kind = element.lastgroup or ""  # the last group of the match names the kind of the element
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
    """Return the line after the code block that begins here; 0 if none begins. An unclosed block ends with the text."""
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
    """Return the line after the table that begins here; 0 if none begins."""
    is_table = start + 1 < len(source) and _ROW.match(source[start]) and "-" in source[start + 1]
    if not is_table or not _COLUMNS.match(source[start + 1]):
        return 0
    end = start + 2
    while end < len(source) and _ROW.match(source[end]):
        end += 1
    return end
