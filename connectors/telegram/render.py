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
    block_line,
    end_of_code,
    end_of_table,
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
    return "\n".join(_blocks(text.split("\n")))


def muted(text: str) -> str:
    """Return plain text in which no ``@name`` notifies a user; mail addresses stay unchanged."""
    return _NAME.sub(f"@{WORD_JOINER}", text)


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Yield each code block, quote and table as a whole, and every other line by itself."""
    at = 0
    while at < len(lines):
        if end := end_of_code(lines, at):
            yield _fenced(lines[at:end])
        elif quoted := list(takewhile(QUOTE.match, lines[at:])):
            end = at + len(quoted)
            yield _wrapped("blockquote", (block_line(QUOTE.sub("", line, 1), DIALECT) for line in quoted))
        elif end := end_of_table(lines, at):
            yield _wrapped("pre", (_escaped(line.strip()) for line in lines[at:end]))
        else:
            end = at + 1
            yield block_line(lines[at], DIALECT)
        at = end


def _wrapped(tag: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<{tag}>{body}</{tag}>"


def _fenced(lines: Sequence[str]) -> str:
    opening = FENCE.match(lines[0])
    assert opening is not None
    last = lines[-1].strip(" \t")
    closed = len(lines) > 1 and len(last) >= len(opening[2]) and set(last) == {opening[2][0]}
    body = _escaped("\n".join(lines[1:-1] if closed else lines[1:]))
    language = LANGUAGE.match(opening[3].strip())
    if language is None:
        return f"<pre>{body}</pre>"
    return f'<pre><code class="language-{language[0]}">{body}</code></pre>'


def _plain(text: str) -> str:
    return _escaped(muted(text))


def _link(label: str, url: str) -> str:
    if label:
        return f'<a href="{html.escape(url)}">{_plain(label)}</a>'
    return _escaped(url if ADDRESS.fullmatch(url) else muted(url))


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


DIALECT = MarkdownDialect(
    plain=_plain,
    literal=lambda mark: _escaped(mark) + (WORD_JOINER if mark == "@" else ""),
    code=lambda text: f"<code>{_escaped(text)}</code>",
    block=_escaped,
    link=_link,
    around={
        "both": ("<b><i>", "</i></b>"),
        "bold": ("<b>", "</b>"),
        "struck": ("<s>", "</s>"),
        "italic": ("<i>", "</i>"),
    },
    inline=re.compile("|".join((*LEAF_PATTERNS, _BARE, *MARK_PATTERNS, _ITALIC_UNDERSCORES))),
)
