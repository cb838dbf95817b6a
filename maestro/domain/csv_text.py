"""Tables as CSV (RFC 4180) that a spreadsheet opens without doing anything."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet compute a cell; names and reasons come from outside."""


def csv_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield each row as a line; a text that would be a formula is made one that is only read."""
    for row in rows:
        line = io.StringIO()
        csv.writer(line).writerow(map(inert, row))
        yield line.getvalue()


def inert(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula; a plain number stays one."""
    return f"'{text}" if text.startswith(FORMULAS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return text[1:].replace(".", "", 1).isdecimal() and text[0] in "+-"
