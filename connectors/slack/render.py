"""Markdown of an answer as Slack's mrkdwn, in which nothing mentions anybody.

What a model writes is not to be trusted: ``& < >`` are escaped everywhere, so that neither ``<!channel>`` nor
``<@U...>`` comes through, and only links of the web and of mail are links.
"""

import re
from collections.abc import Iterator

FENCE = re.compile(r"([ \t]*)(`{3,}(?=[^`]*$)|~{3,})(.*)$")
HEADING = re.compile(r" {0,3}#{1,6}[ \t]+")
BULLET = re.compile(r"([ \t]*)[-*+][ \t]+(?=\S)")
QUOTE = re.compile(r" {0,3}>[> \t]*")
RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")

_SOME = "{1,400}"
"""How many characters two marks that belong together may enclose: each search for one must stay short."""
_CODE = rf"(?P<ticks>`+)(?P<code>.{_SOME}?)(?<!`)(?P=ticks)(?!`)"
_URL = r"(?:https?://|mailto:)"
_LINK = (
    rf"!?\[(?P<label>[^\[\]\n]{_SOME}?)\]"
    rf"\((?P<url>{_URL}[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)(?:[ \t]+\"[^\"\n]{_SOME}?\")?\)"
)
_ANGLED = rf"<(?P<angled>{_URL}[^\s<>]+)>"
_BOTH = rf"\*\*\*(?=\S)(?P<both>.{_SOME}?)(?<=\S)\*\*\*"
_BOLD = rf"\*\*(?=\S)(?P<bold>.{_SOME}?)(?<=\S)\*\*"
_BOLD_TOO = rf"(?<!\w)__(?=\S)(?P<bold2>.{_SOME}?)(?<=\S)__(?!\w)"
_STRUCK = rf"~~(?=\S)(?P<struck>.{_SOME}?)(?<=\S)~~"
_ITALIC = rf"(?<![\w*])\*(?=[^\s*])(?P<italic>[^*\n]{_SOME}?)(?<=[^\s*])\*(?![\w*])"
_ESCAPED = r"\\(?P<literal>[!-/:-@\[-`{-~])"
_KINDS = (_ESCAPED, _CODE, _LINK, _ANGLED, _BOTH, _BOLD, _BOLD_TOO, _STRUCK, _ITALIC)
INLINE = re.compile("|".join(_KINDS))

ZERO_WIDTH = "\u200b"
_AROUND = {"both": ("*_", "_*"), "bold": ("*", "*"), "bold2": ("*", "*"), "struck": ("~", "~"), "italic": ("_", "_")}
_IN_URL = str.maketrans({"|": "%7C", "<": "%3C", ">": "%3E", "&": "&amp;"})


def mrkdwn(text: str) -> str:
    """Return the text as Slack is to show it; a line stays a line, so that it can be cut before or after."""
    return "\n".join(_lines(text))


def escape(text: str) -> str:
    """Return plain text in which Slack finds no control character."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _lines(text: str) -> Iterator[str]:
    marker = ""
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if marker:
            closes = fence is not None and fence[2].startswith(marker) and not fence[3].strip()
            yield "```" if closes else _in_code(line)
            marker = "" if closes else marker
        elif fence is not None:
            marker = fence[2]
            yield "```"
        else:
            yield _line(line)


def _in_code(line: str) -> str:
    """Return a line of a block of code: three ticks in it would end the block."""
    return escape(line).replace("```", f"`{ZERO_WIDTH}`{ZERO_WIDTH}`")


def _line(line: str) -> str:
    quoted = QUOTE.match(line)
    if quoted is not None:
        return "> " + _block(line[quoted.end() :])
    return _block(line)


def _block(line: str) -> str:
    if RULE.match(line):
        return "———"
    heading = HEADING.match(line)
    if heading is not None:
        plain = line[heading.end() :].rstrip().rstrip("#").rstrip().replace("**", "").replace("__", "")
        return f"*{_inline(plain)}*" if plain else ""
    bullet = BULLET.match(line)
    return f"{bullet[1]}• {_inline(line[bullet.end() :])}" if bullet else _inline(line)


def _inline(text: str) -> str:
    out, at = [], 0
    for found in INLINE.finditer(text):
        out += [escape(text[at : found.start()]), _shown(found)]
        at = found.end()
    return "".join([*out, escape(text[at:])])


def _shown(found: re.Match[str]) -> str:
    if found["literal"]:
        # Slack knows no way to say that a mark is meant as it is.
        return escape(found["literal"]) + (ZERO_WIDTH if found["literal"] in "*_~`" else "")
    if found["code"] is not None:
        return f"`{escape(found['code'].strip())}`"
    if found["url"]:
        url = found["url"].translate(_IN_URL)
        return f"<{url}|{_label(found['label'])}>" if found["label"].strip() else f"<{url}>"
    if found["angled"]:
        return f"<{found['angled'].translate(_IN_URL)}>"
    kind = found.lastgroup or ""
    before, after = _AROUND[kind]
    return f"{before}{_inline(found[kind])}{after}"


def _label(text: str) -> str:
    return escape(text).replace("|", "¦")
