"""Text from people and models inside the system message: data between marks, never a line of its own.

See docs/decisions.md: prompt layers.
"""

import json
import re

NAME_CHARS = 80
FACT_CHARS = 500

_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that end a line, move a cursor or are no text at all (Unicode's Cc, Zl, Zp and Cs)."""

_as_json = json.JSONEncoder(ensure_ascii=False).encode


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
