"""Markdown as Matrix shows it: HTML, where a text has anything to show."""

from html import escape

from markdown_it import MarkdownIt

MOST_BYTES = 40_000
"""What the HTML of a message may take: an event has 64 KiB, for everything."""


def html(text: str) -> str:
    """Return the HTML of a text, "" where plain text says as much; HTML in it stays text, and pictures become links."""
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    shown = parser.disable("image").render(text).strip()
    plain = shown == f"<p>{escape(text.strip())}</p>"
    return "" if plain or len(shown.encode()) > MOST_BYTES else shown
