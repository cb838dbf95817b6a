"""Converts texts to values of settings: environment variables, and the targets of ``env:NAME`` and ``file:PATH``."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from maestro.settings.keys import KEYS, Location, key_at

TRUE = frozenset({"true", "yes", "on", "1"})

_NO_LIST = "expected a list as JSON, such as [...]"

EXPECTATIONS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", tuple: "a list"}

ENVIRONMENT = "env:"
FILE = "file:"
LARGEST_FILE = 1024**2  # Bytes; without a limit, a mistyped path could name an endless device.

Report = Callable[[Location, str], None]


def _parse_list(text: str, of_objects: bool) -> list[object]:
    if not text.startswith("[") and not of_objects:
        return [item.strip() for item in text.split(",") if item.strip()]
    if not text.startswith("["):
        raise ValueError(_NO_LIST)
    try:
        items: list[object] = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(_NO_LIST) from None
    return items


def parse_value(text: str, kind: type, of_objects: bool = False) -> object:
    """Parse a text as a value of a type; a list is JSON, and a list of texts may also be separated by commas.

    Raises ``ValueError`` with a sentence that does not quote the text, which may be a misplaced secret.
    """
    if kind is str:
        return text
    text = text.strip()
    if kind is tuple:
        return _parse_list(text, of_objects)
    if kind is bool and text.lower() in TRUE | {"false", "no", "off", "0"}:
        return text.lower() in TRUE
    # int() and float() alone would accept "1_000" and digits of other scripts.
    if kind is int and re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    if kind is float and re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text):
        return float(text)
    raise ValueError(f"expected {EXPECTATIONS[kind]}")


@dataclass(frozen=True)
class References:
    """The environment for references ``env:NAME``, and the folder from which relative paths in ``file:PATH`` start."""

    environment: Mapping[str, str]
    folder: Path

    def resolve_reference(self, text: str) -> str:
        """Return the text that ``env:NAME`` or ``file:PATH`` stands for.

        Raises ``ValueError`` with the fix. An empty text counts as missing: an empty key would silently switch a
        protection off.
        """
        if text.startswith(FILE):
            return self._read_file(text.removeprefix(FILE))
        name = text.removeprefix(ENVIRONMENT)
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
            raise ValueError("env: must be followed by the name of an environment variable")
        value = self.environment.get(name, "")
        if not value:
            raise ValueError(f"the environment variable {name} is not set; set it, or change this key")
        return value

    def _read_file(self, name: str) -> str:
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


def resolve_references(node: object, location: Location, references: References, report: Report) -> object:
    """Return the node with references replaced by their values; report each location of an unreadable reference."""
    if isinstance(node, dict):
        return {name: resolve_references(below, (*location, name), references, report) for name, below in node.items()}
    if isinstance(node, list):
        return [resolve_references(below, (*location, index), references, report) for index, below in enumerate(node)]
    if not isinstance(node, str):
        return node
    try:
        return _resolve_text(node, location, references)
    except ValueError as error:
        report(location, str(error))
        return None


def _resolve_text(text: str, location: Location, references: References) -> object:
    referring = text.startswith((ENVIRONMENT, FILE))
    value = references.resolve_reference(text) if referring else text
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("is not a text in UTF-8")
    key = KEYS.get(key_at(location))
    return parse_value(value, key.kind, key.entry is not None) if referring and key else value


def referred_variables(node: object) -> frozenset[str]:
    """Return the names of all environment variables that ``env:`` references mention."""
    if isinstance(node, dict):
        return frozenset().union(*map(referred_variables, node.values()))
    if isinstance(node, list):
        return frozenset().union(*map(referred_variables, node))
    if isinstance(node, str) and node.startswith(ENVIRONMENT):
        return frozenset({node.removeprefix(ENVIRONMENT)})
    return frozenset()
