"""Texts made storable, quoted in prompts, and escaped in CSV files (docs/decisions.md: prompt layers)."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

NAME_CHARS = 80
FACT_CHARS = 500

_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line and paragraph separators, and surrogates (Unicode's Cc, Zl, Zp and Cs)."""

_as_json = json.JSONEncoder(ensure_ascii=False).encode

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""The characters that begin a spreadsheet formula; unknown users may have written the exported texts."""


def storable_text(text: str) -> str:
    """Return the text without NUL characters, and with a replacement character for each lone surrogate."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text.replace("\0", ""))


def replace_unstorable(value: Any) -> Any:
    """Return a JSON value with a replacement character for each NUL character and each lone surrogate in its texts.

    Texts keep their length, because some platforms give the positions of names and links as character offsets.
    """
    if isinstance(value, str):
        return re.sub("[\0\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, dict):
        return {name: replace_unstorable(entry) for name, entry in value.items()}
    return [replace_unstorable(entry) for entry in value] if isinstance(value, list) else value


def quote_text(text: str, max_chars: int) -> str:
    """Return the text as a JSON string on one line, cut to ``max_chars``; quotes and escapes do not count."""
    plain = plain_line(text)
    return _as_json(plain if len(plain) <= max_chars else f"{plain[: max_chars - 1]}…")


def quoted_lines(text: str) -> str:
    """Return the text with ``>`` before each line, so that no line can imitate Maestro's own text in a prompt."""
    return "\n".join(f"> {_blank_control_characters(line)}" for line in text.splitlines())


def plain_line(text: str) -> str:
    """Return the text as one line, with single blanks between its words."""
    # A printable text has no line breaks or control characters, so most texts skip the slow replacement.
    return " ".join((text if text.isprintable() else _blank_control_characters(text)).split())


def _blank_control_characters(text: str) -> str:
    return _CONTROL_CHARACTERS.sub(" ", text)


def csv_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield each row as a line of CSV; a text that looks like a formula is escaped."""
    for row in rows:
        line = io.StringIO()
        csv.writer(line).writerow(map(escape_formula, row))
        yield line.getvalue()


def escape_formula(text: str) -> str:
    """Return the text with an apostrophe before it if a spreadsheet would execute it as a formula."""
    is_number = text[:1] in ("+", "-") and text[1:].replace(".", "", 1).isdecimal()
    return f"'{text}" if text.startswith(FORMULAS) and not is_number else text
