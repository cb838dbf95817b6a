"""How a text from the environment or a file becomes the value of a key."""

import json
import re

TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})

_NO_LIST = "expected a list as JSON, such as [...]"

EXPECTATIONS = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple: "a list",
}


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered not in TRUE | FALSE:
        raise ValueError
    return lowered in TRUE


def _whole(text: str) -> int:
    # int() alone would take "1_000" and digits of other scripts.
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text) is None:
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    if re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text) is None:
        raise ValueError
    return float(text)


def _items(text: str, of_objects: bool) -> list[object]:
    if not text.startswith("[") and not of_objects:
        return [item.strip() for item in text.split(",") if item.strip()]
    if not text.startswith("["):
        raise ValueError(_NO_LIST)
    try:
        items: list[object] = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(_NO_LIST) from None
    return items


def parse(text: str, kind: type, of_objects: bool = False) -> object:
    """Read the text as a value of that kind; lists as JSON, lists of texts with commas too.

    Raises ``ValueError`` with a sentence that does not quote the text, which may be a misplaced secret.
    """
    if kind is str:
        return text
    if kind is tuple:
        return _items(text.strip(), of_objects)
    reader = {bool: _flag, int: _whole, float: _number}[kind]
    try:
        return reader(text.strip())
    except ValueError:
        raise ValueError(f"expected {EXPECTATIONS[kind]}") from None
