"""The settings as operators see them: what holds, where it comes from, and never a secret.

See docs/decisions.md: secrets at rest.
"""

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import JsonValue, SecretStr
from pydantic_core import PydanticUndefined

from maestro.domain.live import RUNTIME, SettingsPage, SettingView
from maestro.settings.keys import LEAVES, Key
from maestro.settings.loading import Loaded
from maestro.settings.model import Settings
from maestro.settings.overlay import Overlaid
from maestro.settings.reference import limits
from maestro.settings.section import Section

SET = "set"
PASSWORDS = frozenset({"webui.password", "webui.viewerPassword"})
SHOWN = 4
LONG_ENOUGH = 16
"""Characters that a secret has at least before any of it is shown."""

_TYPES = {bool: "boolean", int: "integer", float: "number", tuple: "list", str: "text"}
_LOGIN = re.compile(r"(?<=//)[^/?#\s]*@|(?<=[?&])[^=&\s]*=[^&\s]*")
"""What may be secret in an address: the user with a password, and the values of a query."""


def settings_page(loaded: Loaded, overlaid: Overlaid, version: int) -> SettingsPage:
    """Return every key as it holds now."""
    return SettingsPage(
        items=tuple(_view(key, loaded, overlaid) for key in LEAVES), version=version, file=str(loaded.file or "")
    )


def shown(value: Any) -> JsonValue:
    """Return a value as it may be shown to anybody who may see the settings at all."""
    if isinstance(value, SecretStr):
        return hint(value.get_secret_value())
    if isinstance(value, Section):
        fields = type(value).model_fields
        return {field.alias or name: _of_entry(name, getattr(value, name)) for name, field in fields.items()}
    if isinstance(value, dict):
        return {name: shown(below) for name, below in value.items()}
    if isinstance(value, tuple):
        return [shown(below) for below in value]
    if isinstance(value, str | Path):
        return _LOGIN.sub("", str(value))
    plain: JsonValue = value
    return plain


def hint(secret: str) -> str:
    """Return what people know a secret by: its end if it is long enough, else that it is set."""
    if not secret:
        return ""
    return f"...{secret[-SHOWN:]}" if len(secret) >= LONG_ENOUGH else SET


def held(settings: Settings, key: Key) -> Any:
    """Return the value of a key."""
    value: Any = settings
    for name in key.names:
        value = getattr(value, name)
    return value


def _of_key(key: Key, value: Any) -> JsonValue:
    # People choose passwords themselves: the end of one is a good part of it, and a viewer reads this too.
    if key.path in PASSWORDS:
        return SET if value.get_secret_value() else ""
    return shown(value)


def _of_entry(name: str, value: Any) -> JsonValue:
    # Programs are often told their keys as arguments.
    return [SET for _ in value] if name == "args" else shown(value)


def _view(key: Key, loaded: Loaded, overlaid: Overlaid) -> SettingView:
    default = key.field.default
    return SettingView(
        key=key.path,
        value=_of_key(key, held(overlaid.settings, key)),
        default=None if default is PydanticUndefined else shown(default),
        origin=RUNTIME if key.path in overlaid.values else loaded.origins.get(key.path, "default"),
        changes="live" if key.live else "restart",
        type="secret" if isinstance(default, SecretStr) else _TYPES[key.kind],
        limits=limits(key),
        choices=_choices(key.field.annotation),
        description=key.field.description or "",
        variable=key.variables[0],
        problem=overlaid.refused.get(key.path, ""),
    )


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the words that a key, or each item of its list, may be."""
    if get_origin(annotation) is tuple:
        annotation = get_args(annotation)[0]
    return tuple(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ()
