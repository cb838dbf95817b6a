"""Markdown of an answer as Slack's mrkdwn, in which nothing mentions anybody.

What a model writes is not to be trusted: ``& < >`` are escaped everywhere, so that neither ``<!channel>`` nor
``<@U...>`` comes through, and only links of the web and of mail are links.
"""

from connectors.markdown import APART, TICKS, ZERO_WIDTH, Dialect, lines

_AROUND = {"both": ("*_", "_*"), "bold": ("*", "*"), "struck": ("~", "~"), "italic": ("_", "_")}
_IN_URL = str.maketrans({"|": "%7C", "<": "%3C", ">": "%3E", "&": "&amp;"})


def mrkdwn(text: str) -> str:
    """Return the text as Slack is to show it; a line stays a line, so that it can be cut before or after."""
    return "\n".join(lines(text, DIALECT))


def escape(text: str) -> str:
    """Return plain text in which Slack finds no control character."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _literal(mark: str) -> str:
    """Slack knows no way to say that a mark is meant as it is."""
    return escape(mark) + (ZERO_WIDTH if mark in "*_~`" else "")


def _code(text: str) -> str:
    return f"`{escape(text)}`"


def _in_block(line: str) -> str:
    """Return a line of a block of code: three ticks in it would end the block."""
    return escape(line).replace(TICKS, APART)


def _link(label: str, url: str) -> str:
    shown = escape(label).replace("|", "¦")
    return f"<{url.translate(_IN_URL)}|{shown}>" if label.strip() else f"<{url.translate(_IN_URL)}>"


DIALECT = Dialect(plain=escape, literal=_literal, code=_code, block=_in_block, link=_link, around=_AROUND)
