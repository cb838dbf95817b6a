"""Telegram's HTML, read as strictly as Telegram reads it: what it does not know costs the whole message."""

import re
from html import unescape

TAGS = frozenset({"b", "i", "u", "s", "a", "code", "pre", "blockquote"})
_TAG = re.compile(r"<(/?)([a-z]+)((?: [a-z]+=\"[^\"<>]*\")*)>")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|#x?[0-9a-fA-F]+);")


class MarkupError(Exception):
    """What is wrong with it."""


def plain(markup: str) -> str:
    """Return the text that is seen; raises ``MarkupError``."""
    seen, at, opened = [], 0, list[str]()
    for tag in _TAG.finditer(markup):
        seen.append(_text(markup[at : tag.start()]))
        at = tag.end()
        closes, name, _ = tag.groups()
        if name not in TAGS:
            raise MarkupError(f'Unsupported start tag "{name}" at byte offset {tag.start()}')
        if not closes:
            opened.append(name)
        elif not opened or opened.pop() != name:
            raise MarkupError(f'Unexpected end tag "{name}" at byte offset {tag.start()}')
    if opened:
        raise MarkupError(f'Can\'t find end tag corresponding to start tag "{opened[-1]}"')
    return "".join([*seen, _text(markup[at:])])


def _text(raw: str) -> str:
    if "<" in raw or ">" in raw or "&" in _ENTITY.sub("", raw):
        raise MarkupError("Unexpected character in the text")
    return unescape(raw)
