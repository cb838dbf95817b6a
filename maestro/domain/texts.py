"""Text from people and models: as stores and providers take it, quoted in a system message, and as CSV.

See docs/decisions.md: prompt layers.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")

NAME_CHARS = 80
FACT_CHARS = 500

_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that end a line, move a cursor or are no text at all (Unicode's Cc, Zl, Zp and Cs)."""

_as_json = json.JSONEncoder(ensure_ascii=False).encode

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet compute a cell; names and reasons come from outside."""


def storable(text: str) -> str:
    """Return the text without NUL, and with a mark in the place of each half of a surrogate pair."""
    return _LONE_SURROGATE.sub("\ufffd", text.replace("\0", ""))


def tidied(value: Any) -> Any:
    """Return what was read of JSON with a mark in the place of each NUL and each half of a surrogate pair.

    Every character keeps its place, because some platforms say by number where names and links are.
    """
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {name: tidied(one) for name, one in value.items()}
    return [tidied(one) for one in value] if isinstance(value, list) else value


def quoted(text: str, longest: int) -> str:
    """Return a text as one JSON string of at most ``longest`` characters between its quotes, escapes not counted."""
    plain = plain_line(text)
    return _as_json(plain if len(plain) <= longest else f"{plain[: longest - 1]}…")


def quoted_lines(text: str) -> str:
    """Return a text with a mark before each of its lines, so that none can pose as one of ours."""
    return "\n".join(f"> {_plain(line)}" for line in text.splitlines())


def plain_line(text: str) -> str:
    """Return a text as one line, its words parted by single blanks."""
    # Nothing that breaks a line is printable, and most texts are printable throughout.
    return " ".join((text if text.isprintable() else _plain(text)).split())


def _plain(text: str) -> str:
    return _BREAKING.sub(" ", text)


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
