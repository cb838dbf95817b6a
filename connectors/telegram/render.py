"""Markdown of an answer as the HTML that Telegram knows, in which nobody is notified.

What a model writes is not to be trusted: all that is no markup of ours is escaped, a name that a person or a bot could
have is broken by an invisible character, and only links of the web and of mail are links. Every tag that is opened is
closed on the same line, those of blocks before the next block, so Telegram can read whatever comes out.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from connectors.markdown import BULLET, FENCE, HEADING, MARKS, PIECES, QUOTE, RULE, SOME

LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$")
DIVIDER = re.compile(r"[ \t]*\|(?:[ \t]*:?-+:?[ \t]*\|)+[ \t]*$")

_WEB = r"https?://(?:[\w-]+\.)+[^\W\d_]{2,}(?![\w-])(?:[:/?#][^\s<>\"«»\u2000-\u206f]*)?"
"""What is an address to Telegram as well, to its end: in what is none, it would look for names."""
_BARE = rf"(?<!\w)(?P<bare>{_WEB})"
_ITALIC_TOO = rf"(?<!\w)_(?=[^\s_])(?P<italic2>[^_\n]{SOME}?)(?<=[^\s_])_(?!\w)"
INLINE = re.compile("|".join((*PIECES, _BARE, *MARKS, _ITALIC_TOO)))
ADDRESS = re.compile(_WEB)
"""What Telegram makes a link of, in which an ``@`` is no name."""

_BOLD_TAGS = ("<b>", "</b>")
_ITALIC_TAGS = ("<i>", "</i>")
_AROUND = {
    "both": ("<b><i>", "</i></b>"),
    "bold": _BOLD_TAGS,
    "bold2": _BOLD_TAGS,
    "struck": ("<s>", "</s>"),
    "italic": _ITALIC_TAGS,
    "italic2": _ITALIC_TAGS,
}
WORD_JOINER = "\u2060"
_NAME = re.compile(r"(?<!\w)@(?=\w)")


def render(text: str) -> str:
    """Return the text as Telegram is to show it; pure, and every text has a rendering."""
    return "\n".join(_blocks(text.split("\n")))


def muted(text: str) -> str:
    """Return plain text in which no ``@name`` is one that Telegram would notify; addresses of mail stay as they are."""
    return _NAME.sub(f"@{WORD_JOINER}", text)


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Yield code, quotes and tables as one, and every other line by itself."""
    at = 0
    while at < len(lines):
        if FENCE.match(lines[at]):
            end = _end_of_code(lines, at)
            yield _code(lines[at:end])
        elif QUOTE.match(lines[at]):
            end = _while(QUOTE, lines, at)
            yield _wrapped("blockquote", map(_quoted, lines[at:end]))
        elif _is_table(lines, at):
            end = _while(ROW, lines, at)
            yield _wrapped("pre", (_escaped(line.strip()) for line in lines[at:end]))
        else:
            end = at + 1
            yield _line(lines[at])
        at = end


def _wrapped(tag: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<{tag}>{body}</{tag}>"


def _end_of_code(lines: Sequence[str], start: int) -> int:
    """Return where the code that begins here ends: behind its last fence, or with the text."""
    for at in range(start + 1, len(lines)):
        if _closes(lines[start], lines[at]):
            return at + 1
    return len(lines)


def _closes(opening: str, line: str) -> bool:
    begun, fence = FENCE.match(opening), FENCE.match(line)
    return begun is not None and fence is not None and fence[2].startswith(begun[2]) and not fence[3].strip()


def _code(lines: Sequence[str]) -> str:
    closed = len(lines) > 1 and _closes(lines[0], lines[-1])
    body = _escaped("\n".join(lines[1:-1] if closed else lines[1:]))
    begun = FENCE.match(lines[0])
    language = LANGUAGE.match(begun[3].strip()) if begun is not None else None
    if language is None:
        return f"<pre>{body}</pre>"
    return f'<pre><code class="language-{language[0]}">{body}</code></pre>'


def _while(pattern: re.Pattern[str], lines: Sequence[str], start: int) -> int:
    end = start
    while end < len(lines) and pattern.match(lines[end]):
        end += 1
    return end


def _is_table(lines: Sequence[str], at: int) -> bool:
    return at + 1 < len(lines) and ROW.match(lines[at]) is not None and DIVIDER.match(lines[at + 1]) is not None


def _quoted(line: str) -> str:
    found = QUOTE.match(line)
    return _line(line[found.end() :]) if found is not None else _line(line)


def _line(line: str) -> str:
    if RULE.match(line):
        return "———"
    heading = HEADING.match(line)
    if heading is not None:
        plain = line[heading.end() :].rstrip().rstrip("#").rstrip().replace("**", "").replace("__", "")
        return f"<b>{_inline(plain)}</b>" if plain else ""
    bullet = BULLET.match(line)
    return f"{bullet[1]}• {_inline(line[bullet.end() :])}" if bullet else _inline(line)


def _inline(text: str) -> str:
    out, at = [], 0
    for found in INLINE.finditer(text):
        out += [_plain(text, at, found.start()), _shown(found)]
        at = found.end()
    return "".join([*out, _plain(text, at, len(text))])


def _plain(text: str, start: int, end: int) -> str:
    """Return a part of a text as it is; what stands before it says whether an ``@`` begins a name."""
    pieces, at = [], start
    for name in _NAME.finditer(text, start, end):
        pieces += [text[at : name.start()], f"@{WORD_JOINER}"]
        at = name.end()
    return _escaped("".join([*pieces, text[at:end]]))


def _shown(found: re.Match[str]) -> str:
    if found["literal"]:
        return _escaped(found["literal"]) + (WORD_JOINER if found["literal"] == "@" else "")
    if found["code"] is not None:
        return f"<code>{_escaped(found['code'].strip() or found['code'])}</code>"
    if found["url"]:
        return f'<a href="{html.escape(found["url"])}">{_escaped(muted(found["label"]))}</a>'
    if found["angled"]:
        return _escaped(found["angled"] if ADDRESS.fullmatch(found["angled"]) else muted(found["angled"]))
    if found["bare"]:
        return _escaped(found["bare"])
    kind = found.lastgroup or ""
    before, after = _AROUND[kind]
    return f"{before}{_inline(found[kind])}{after}"


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
