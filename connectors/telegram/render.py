"""The rendering of Markdown as Telegram's HTML, in which no user is notified.

A model's text is not trusted: everything except the rendered markup is escaped, an invisible character breaks up names
of users and bots, and only web and mail links become links. Each inline tag is closed on its line and each block tag
before the next block, so Telegram can parse any output.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from connectors.markdown import (
    LEAF_PATTERNS,
    MARK_PATTERNS,
    QUOTE,
    SPAN,
    MarkdownDialect,
    find_code_end,
    find_table_end,
    render_line,
)
from connectors.splitting import FENCE

LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
_WEB = r"https?://(?:[\w-]+\.)+[^\W\d_]{2,}(?![\w-])(?:[:/?#][^\s<>\"«»\u2000-\u206f]*)?"
ADDRESS = re.compile(_WEB)
"""An address that Telegram turns into a link; an ``@`` in an address is no user name."""
WORD_JOINER = "\u2060"
_NAME = re.compile(r"(?<!\w)@(?=\w)")
_BARE = rf"(?<!\w)(?P<bare>{_WEB})"
_ITALIC_UNDERSCORES = rf"(?<!\w)_(?=[^\s_])(?P<italic2>[^_\n]{SPAN}?)(?<=[^\s_])_(?!\w)"


def render(text: str) -> str:
    """Return any Markdown text as Telegram's HTML."""
    return "\n".join(_render_blocks(text.split("\n")))


def without_mentions(text: str) -> str:
    """Return plain text in which no ``@name`` notifies a user; mail addresses stay unchanged."""
    return _NAME.sub(f"@{WORD_JOINER}", text)


def _render_blocks(lines: Sequence[str]) -> Iterator[str]:
    """Yield each code block, quote and table as a whole, and every other line by itself."""
    at = 0
    while at < len(lines):
        if end := find_code_end(lines, at):
            yield _render_code_block(lines[at:end])
        elif quoted := list(takewhile(QUOTE.match, lines[at:])):
            end = at + len(quoted)
            yield _wrap_in_tag("blockquote", (render_line(QUOTE.sub("", line, 1), DIALECT) for line in quoted))
        elif end := find_table_end(lines, at):
            yield _wrap_in_tag("pre", (_escape_html(line.strip()) for line in lines[at:end]))
        else:
            end = at + 1
            yield render_line(lines[at], DIALECT)
        at = end


def _wrap_in_tag(tag: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<{tag}>{body}</{tag}>"


def _render_code_block(lines: Sequence[str]) -> str:
    opening = FENCE.match(lines[0])
    assert opening is not None
    last = lines[-1].strip(" \t")
    closed = len(lines) > 1 and len(last) >= len(opening[2]) and set(last) == {opening[2][0]}
    body = _escape_html("\n".join(lines[1:-1] if closed else lines[1:]))
    language = LANGUAGE.match(opening[3].strip())
    if language is None:
        return f"<pre>{body}</pre>"
    return f'<pre><code class="language-{language[0]}">{body}</code></pre>'


def _render_text(text: str) -> str:
    return _escape_html(without_mentions(text))


def _render_link(label: str, url: str) -> str:
    if label:
        return f'<a href="{html.escape(url)}">{_render_text(label)}</a>'
    return _escape_html(url if ADDRESS.fullmatch(url) else without_mentions(url))


def _escape_html(text: str) -> str:
    return html.escape(text, quote=False)


DIALECT = MarkdownDialect(
    plain=_render_text,
    literal=lambda mark: _escape_html(mark) + (WORD_JOINER if mark == "@" else ""),
    code=lambda text: f"<code>{_escape_html(text)}</code>",
    block=_escape_html,
    link=_render_link,
    around={
        "both": ("<b><i>", "</i></b>"),
        "bold": ("<b>", "</b>"),
        "struck": ("<s>", "</s>"),
        "italic": ("<i>", "</i>"),
    },
    inline=re.compile("|".join((*LEAF_PATTERNS, _BARE, *MARK_PATTERNS, _ITALIC_UNDERSCORES))),
)
