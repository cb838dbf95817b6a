"""Fills what a program outside said into a text: the placeholders of webhooks and of script heartbeats."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from maestro.domain.texts import storable

LONGEST = 20_000
"""Characters of the longest text that comes of filling; of a longer one the middle is left out."""
MOST_PLACEHOLDERS = 50
MISSING = "??"
"""What stands where there is nothing to fill in."""

_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_PATH = re.compile(r"[^\s.{}]{1,100}(\.[^\s.{}]{1,100}){0,19}")
_QUOTED = 60
NOTHING = object()
"""What is at a path that leads nowhere."""


@dataclass(frozen=True)
class Filled:
    """A text, and the paths in it for which there was no value."""

    text: str
    missing: tuple[str, ...] = ()


def as_text(value: object) -> str:
    """Return a value as people write it: a text as it is, everything else as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fill(template: str, values: object, shown: Callable[[object], str] = as_text) -> Filled:
    """Put values into every ``{{path}}`` of a template; what is in the values is never looked at for more of them.

    A path is keys of objects and places in lists, from 0, with dots between: ``{{payload.items.0.name}}``. ``shown``
    turns what is found there into text. What is not there becomes ``MISSING``. What is no path stays as it is.
    """
    paths = {found[1].strip() for found in _PLACEHOLDER.finditer(template)}
    found = {path: value_at(values, path) for path in sorted(paths) if _PATH.fullmatch(path)}
    texts = {
        path: MISSING if value is NOTHING else shortened(storable(shown(value)), LONGEST)
        for path, value in found.items()
    }
    text = _PLACEHOLDER.sub(lambda placeholder: texts.get(placeholder[1].strip(), placeholder[0]), template)
    return Filled(shortened(storable(text), LONGEST), tuple(path for path, value in found.items() if value is NOTHING))


def checked_template(template: str, root: str = "") -> str:
    """Return a template that can be filled; with a ``root``, every path must begin with that key.

    Raises ``ValueError`` with the sentence for whoever wrote it.
    """
    placeholders = _PLACEHOLDER.findall(template)
    example = f"{{{{{root}.user.name}}}}" if root else "{{user.name}}"
    if "{{" in _PLACEHOLDER.sub("", template):
        raise ValueError(f"after {{{{ there must be the path of a field and }}}}, such as {example}")
    if len(placeholders) > MOST_PLACEHOLDERS:
        raise ValueError(f"there are {len(placeholders)} placeholders; {MOST_PLACEHOLDERS} are the most")
    for path in map(str.strip, placeholders):
        if not _PATH.fullmatch(path):
            raise ValueError(f"{{{{{path[:_QUOTED]}}}}} is no path of a field; write keys with dots, as in {example}")
        if root and path.split(".")[0] != root:
            raise ValueError(f"{{{{{path[:_QUOTED]}}}}} does not begin with {root}; write it as in {example}")
    return template


def checked_prompt(template: str, root: str = "") -> str:
    """Return a template that tells an agent something; raises ``ValueError`` as ``checked_template`` does."""
    if not template.strip():
        raise ValueError("is empty; write what the agent is to do")
    return checked_template(template, root)


def shortened(text: str, longest: int) -> str:
    """Return a text of at most so many characters, the middle of a longer one left out and that said."""
    if len(text) <= longest:
        return text
    note = f"\n… [{len(text)} characters, the middle is left out] …\n"
    kept = max(longest - len(note), 0)
    tail = kept // 2
    return f"{text[: kept - tail]}{note}{text[len(text) - tail :]}"[:longest]


def value_at(values: object, path: str) -> object:
    """Return what is at a path of keys and places, ``NOTHING`` if nothing is."""
    found = values
    for key in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(key, NOTHING)
        elif isinstance(found, Sequence) and not isinstance(found, str) and _is_place(key, found):
            found = found[int(key)]
        else:
            return NOTHING
    return found


def _is_place(key: str, values: Sequence[object]) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(values)
