"""Text in columns; nothing is cut off, so that an id can be copied and a pipe sees everything."""

from collections.abc import Iterator, Sequence

GAP = "  "


def lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, each column as wide as its widest text."""
    table = [tuple(title.upper() for title in head), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def plain(text: str) -> str:
    """Return a text as one line that does nothing to a terminal: names and reasons come from outside."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
