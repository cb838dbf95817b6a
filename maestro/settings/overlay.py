"""What was set while Maestro runs, laid over what it was started with (docs/invariants.md: live settings)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from maestro.settings.keys import KEYS, LEAVES, Location
from maestro.settings.loading import Loaded, validated
from maestro.settings.model import Settings
from maestro.settings.problems import translate, unknown_key

NEEDS_RESTART = "{path}: it is read at the start only; set it in {file} or in {variable}, and restart Maestro"
DEFAULT_FILE = "maestro.json"

Values = Mapping[str, object]
"""Values by key, as ``chat.limits.maxMessageChars``."""


@dataclass(frozen=True)
class Overlaid:
    """The settings that hold, the values of ours that count in them, and what is wrong with each of the others."""

    settings: Settings
    values: Values
    refused: Mapping[str, str]


def overlay(loaded: Loaded, values: Values) -> Overlaid:
    """Lay the values over what was loaded; those that this release refuses are left out, and said to be.

    A value may have been fine for the release, or beside the file, that it was set with.
    """
    refused = {path: sentence for path in values if (sentence := not_settable(path, loaded))}
    while wanted := {path: value for path, value in values.items() if path not in refused}:
        try:
            return Overlaid(validated(_laid(loaded.tree, wanted)), wanted, refused)
        except ValidationError as error:
            refused |= _blamed(error, wanted)
    return Overlaid(loaded.settings, {}, refused)


def not_settable(path: str, loaded: Loaded) -> str | None:
    """Return why a key cannot be set while Maestro runs, and where it is set instead, or None."""
    # Entries of a list are set all together, as the list is.
    key = KEYS[path.partition("[]")[0]] if path in KEYS else None
    below = next((leaf for leaf in LEAVES if leaf.path.startswith(f"{path}.")), None)
    if key is None and below is not None:
        return f"{path}: it is a section; name a key in it, such as {below.path}"
    if key is None:
        return f"{path}: {unknown_key(tuple(path.split('.')))}"
    file = loaded.file or DEFAULT_FILE
    return None if key.live else NEEDS_RESTART.format(path=key.path, file=file, variable=key.variables[0])


def _laid(tree: Mapping[str, object], values: Values) -> dict[str, Any]:
    laid: dict[str, Any] = json.loads(json.dumps(tree))
    for path, value in values.items():
        section = laid
        *above, last = path.split(".")
        for name in above:
            section = section.setdefault(name, {})
        section[last] = value
    return laid


def _blamed(error: ValidationError, values: Values) -> dict[str, str]:
    """Return which values a refusal is about; all of them where it is about none in particular."""
    blamed: dict[str, str] = {}
    found = error.errors(include_url=False, include_input=False)
    for problem, sentence in zip(found, translate(error, (), {}), strict=True):
        near = [path for path in values if _meet(KEYS[path].location, problem["loc"])]
        blamed |= dict.fromkeys(near or values, sentence)
    return blamed


def _meet(key: Location, problem: Iterable[str | int]) -> bool:
    """Say whether a problem is at a key, within its value, or about a section that the key is in."""
    return all(one == other for one, other in zip(key, problem, strict=False))
