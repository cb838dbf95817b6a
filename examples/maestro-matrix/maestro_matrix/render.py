"""Markdown as the HTML of Matrix messages."""

from html import escape

from markdown_it import MarkdownIt

MOST_BYTES = 40_000
"""The most bytes of a message's HTML: a whole event has at most 64 KiB."""


def html(text: str) -> str:
    """Return Markdown as HTML, "" if plain text suffices; HTML in the text is escaped, and pictures become links."""
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    rendered = parser.disable("image").render(text).strip()
    plain = rendered == f"<p>{escape(text.strip())}</p>"
    return "" if plain or len(rendered.encode()) > MOST_BYTES else rendered
