"""The keys of the configuration, derived from the class ``Settings``: paths, environment variables and types."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from maestro.domain.settings.section import LIVE
from maestro.settings.model import Settings

Location = tuple[str | int, ...]

SEPARATOR = "__"
PREFIX = "MAESTRO"


@dataclass(frozen=True)
class Key:
    """One setting; ``path`` is its dotted name in the file, such as ``agents[].slug`` for a key of a list's entries."""

    path: str
    names: tuple[str, ...]
    kind: type
    field: FieldInfo
    entry: type[BaseModel] | None = None

    @property
    def location(self) -> Location:
        return tuple(self.path.split("."))

    @property
    def live(self) -> bool:
        """Whether the key may be set while Maestro runs."""
        return self.field.json_schema_extra == LIVE

    @property
    def variables(self) -> tuple[str, ...]:
        """The key's environment variables, the usual one first; keys below a subsection have the ``__`` form only."""
        if "[]" in self.path:
            return ()
        names = [name.upper() for name in self.names]
        unambiguous = SEPARATOR.join((PREFIX, *names))
        return (unambiguous,) if len(names) > 2 else ("_".join((PREFIX, *names)), unambiguous)


def format_location(location: Location) -> str:
    """Return a location as a text: ``llm.accounts[0].apiKey``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def key_at(location: Location) -> str:
    """Return the key of a location, without positions in lists: ``llm.accounts[].apiKey``."""
    return re.sub(r"\[\d+\]", "[]", format_location(location))


def _bare_type(annotation: Any) -> Any:
    """Return a field's type without validation rules, and without None, which a file cannot contain."""
    if get_origin(annotation) in (UnionType, Union):
        (annotation,) = (member for member in get_args(annotation) if member is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _value_type(annotation: Any) -> type:
    """Return the Python type of a value; ``str`` for every value that the file writes as a text."""
    origin = get_origin(annotation)
    if origin in (tuple, dict):
        return tuple if origin is tuple else dict
    if origin is Literal or annotation in (Path, SecretStr):
        return str
    assert isinstance(annotation, type)
    return annotation


def _list_keys(model: type[BaseModel], path: str, names: tuple[str, ...]) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        annotation = _bare_type(field.annotation)
        key_path, key_names = f"{path}{field.alias}", (*names, name)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _list_keys(annotation, f"{key_path}.", key_names)
            continue
        item = _bare_type(get_args(annotation)[0]) if get_origin(annotation) is tuple else None
        entry = item if isinstance(item, type) and issubclass(item, BaseModel) else None
        yield Key(key_path, key_names, _value_type(annotation), field, entry)
        if entry is not None:
            yield from _list_keys(entry, f"{key_path}[].", key_names)


KEYS = {key.path: key for key in _list_keys(Settings, "", ())}
VARIABLES = {variable: key for key in KEYS.values() for variable in key.variables}
LEAVES = tuple(key for key in KEYS.values() if "[]" not in key.path)


def limits_text(key: Key) -> str:
    """Return the limits of a setting's value as a text, such as ``at least 1``; empty without limits."""
    bounds = {
        word: getattr(rule, name)
        for rule in key.field.metadata
        for name, word in (("gt", "more than"), ("ge", "at least"), ("le", "at most"))
        if hasattr(rule, name)
    }
    return "; ".join(f"{word} {bound:.15g}" for word, bound in bounds.items())
