"""Texts as values of keys: from the environment, or from where ``env:NAME`` and ``file:PATH`` refer to."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from maestro.settings.keys import KEYS, Location, pattern

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

ENVIRONMENT = "env:"
FILE = "file:"
LARGEST_FILE = 1024**2  # bytes; a limit, because a mistyped path may name a device without an end

Report = Callable[[Location, str], None]


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered not in TRUE | FALSE:
        raise ValueError
    return lowered in TRUE


def _whole(text: str) -> int:
    # int() alone would accept "1_000" and digits of other scripts.
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


@dataclass(frozen=True)
class References:
    """Where references are looked up; relative paths start at ``folder``."""

    environment: Mapping[str, str]
    folder: Path

    def read(self, text: str) -> str:
        """The text that ``env:NAME`` or ``file:PATH`` stands for.

        Raises ``ValueError`` with the fix. Nothing there counts as missing: a key that turns out to be empty
        would silently switch a protection off.
        """
        if text.startswith(ENVIRONMENT):
            return self._variable(text.removeprefix(ENVIRONMENT))
        return self._file(text.removeprefix(FILE))

    def _variable(self, name: str) -> str:
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
            raise ValueError("env: must be followed by the name of an environment variable")
        value = self.environment.get(name, "")
        if not value:
            raise ValueError(f"the environment variable {name} is not set; set it, or change this key")
        return value

    def _file(self, name: str) -> str:
        path = self.folder / name
        try:
            path = self.folder / Path(name).expanduser()
            with path.open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
            text = content.decode().rstrip("\r\n")
        except OSError as error:
            raise ValueError(f"the file {path} cannot be read ({error.strerror}); fix the path or its rights") from None
        except (ValueError, RuntimeError):
            raise ValueError(f"the file {path} is not a text in UTF-8; fix the path or the file") from None
        if not text or len(content) > LARGEST_FILE:
            raise ValueError(f"the file {path} is {'too large' if text else 'empty'}; fix the path or the file")
        return text


def resolve(node: object, location: Location, references: References, report: Report) -> object:
    """Replace references by their values; report each location whose reference cannot be read."""
    if isinstance(node, dict):
        return {name: resolve(below, (*location, name), references, report) for name, below in node.items()}
    if isinstance(node, list):
        return [resolve(below, (*location, index), references, report) for index, below in enumerate(node)]
    if not isinstance(node, str):
        return node
    try:
        return _value(node, location, references)
    except ValueError as error:
        report(location, str(error))
        return None


def _value(text: str, location: Location, references: References) -> object:
    referring = text.startswith((ENVIRONMENT, FILE))
    value = references.read(text) if referring else text
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("is not a text in UTF-8")
    key = KEYS.get(pattern(location))
    return parse(value, key.kind, key.entry is not None) if referring and key else value


def referred_variables(node: object) -> frozenset[str]:
    """The names of all environment variables that ``env:`` references mention."""
    if isinstance(node, dict):
        return frozenset().union(*map(referred_variables, node.values()))
    if isinstance(node, list):
        return frozenset().union(*map(referred_variables, node))
    if isinstance(node, str) and node.startswith(ENVIRONMENT):
        return frozenset({node.removeprefix(ENVIRONMENT)})
    return frozenset()
