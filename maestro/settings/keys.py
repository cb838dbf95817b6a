"""The keys of the configuration, read off the model: their paths, their environment variables, their kinds."""

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
    """One setting; ``path`` is written as in the file, ``agents[].slug`` for a key of a list's entries."""

    path: str
    names: tuple[str, ...]
    kind: type
    field: FieldInfo
    entry: type[BaseModel] | None = None

    @property
    def location(self) -> Location:
        """Where the value stands in the file."""
        return tuple(self.path.split("."))

    @property
    def live(self) -> bool:
        """Whether it may be set while Maestro runs."""
        return self.field.json_schema_extra == LIVE

    @property
    def variables(self) -> tuple[str, ...]:
        """Its environment variables, the usual one first; keys deeper than a section have the ``__`` form only."""
        if "[]" in self.path:
            return ()
        names = [name.upper() for name in self.names]
        unambiguous = SEPARATOR.join((PREFIX, *names))
        return (unambiguous,) if len(names) > 2 else ("_".join((PREFIX, *names)), unambiguous)


def show(location: Location) -> str:
    """The location as people write it: ``llm.accounts[0].apiKey``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def pattern(location: Location) -> str:
    """The location without the positions in lists: ``llm.accounts[].apiKey``."""
    return re.sub(r"\[\d+\]", "[]", show(location))


def _plain(annotation: Any) -> Any:
    """What a value is without its rules; None, where a key may be left out, is not a value to write."""
    if get_origin(annotation) in (UnionType, Union):
        (annotation,) = (one for one in get_args(annotation) if one is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _kind(annotation: Any) -> type:
    """The Python type a value has; anything that is written as a text is ``str``."""
    origin = get_origin(annotation)
    if origin in (tuple, dict):
        return tuple if origin is tuple else dict
    if origin is Literal or annotation in (Path, SecretStr):
        return str
    assert isinstance(annotation, type)
    return annotation


def _entry(annotation: Any) -> type[BaseModel] | None:
    """The model of a list's entries, if it is a list of objects."""
    item = _plain(get_args(annotation)[0]) if get_origin(annotation) is tuple else None
    return item if isinstance(item, type) and issubclass(item, BaseModel) else None


def _walk(model: type[BaseModel], path: str, names: tuple[str, ...]) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        annotation = _plain(field.annotation)
        here, called = f"{path}{field.alias}", (*names, name)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _walk(annotation, f"{here}.", called)
            continue
        entry = _entry(annotation)
        yield Key(here, called, _kind(annotation), field, entry)
        if entry is not None:
            yield from _walk(entry, f"{here}[].", called)


KEYS = {key.path: key for key in _walk(Settings, "", ())}
VARIABLES = {variable: key for key in KEYS.values() for variable in key.variables}
LEAVES = tuple(key for key in KEYS.values() if "[]" not in key.path)
