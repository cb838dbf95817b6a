"""Text from outside as every store and every provider takes it."""

import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """Return the text without NUL, and with a mark in the place of each half of a surrogate pair."""
    return _LONE_SURROGATE.sub("\ufffd", text.replace("\0", ""))
