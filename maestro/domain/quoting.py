"""Text from people and models inside the system message: data between marks, never a line of its own (decision 6)."""

import json
import unicodedata

NAME_CHARS = 80
FACT_CHARS = 500

_BREAKING = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""The kinds of characters that end a line, move a cursor or are no text at all."""


def quoted(text: str, longest: int) -> str:
    """Return a text as one JSON string of at most ``longest`` characters between its quotes, escapes not counted."""
    plain = " ".join(_plain(text).split())
    return json.dumps(plain if len(plain) <= longest else f"{plain[: longest - 1]}…", ensure_ascii=False)


def quoted_lines(text: str) -> str:
    """Return a text with a mark before each of its lines, so that none can pose as one of ours."""
    return "\n".join(f"> {_plain(line)}" for line in text.splitlines())


def _plain(text: str) -> str:
    return "".join(" " if unicodedata.category(character) in _BREAKING else character for character in text)
