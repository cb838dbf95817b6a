"""Text from outside as every store and every provider takes it."""

import re
from typing import Any

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


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
