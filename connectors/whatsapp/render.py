"""Markdown of an answer as WhatsApp's own marks; links stand there as text, and tables are code."""

from connectors.markdown import APART, TICKS, ZERO_WIDTH, Dialect, blocks, lines

_AROUND = {"both": ("*_", "_*"), "bold": ("*", "*"), "struck": ("~", "~"), "italic": ("_", "_")}


def marked(text: str) -> str:
    """Return the text as WhatsApp is to show it; a block of code that is not closed is closed at the end.

    Of marks around nothing nothing would be left, and WhatsApp takes no empty message: they stay as they are.
    """
    source = [line for block in blocks(text.split("\n")) for line in block]
    written = list(lines("\n".join(source), DIALECT))
    is_open = sum(line == TICKS for line in written) % 2 == 1
    shown = "\n".join([*written, TICKS] if is_open else written)
    return shown if shown.strip() else text


def _plain(text: str) -> str:
    """Return text in which no three ticks begin a block of code."""
    return text.replace(TICKS, APART)


def _literal(mark: str) -> str:
    """WhatsApp knows no way to say that a mark is meant as it is."""
    return mark + (ZERO_WIDTH if mark in "*_~`>" else "")


def _code(text: str) -> str:
    return f"`{_plain(text)}`"


def _link(label: str, url: str) -> str:
    said = _plain(label).strip()
    return f"{said} ({url})" if said and said != url else url


DIALECT = Dialect(plain=_plain, literal=_literal, code=_code, block=_plain, link=_link, around=_AROUND)
