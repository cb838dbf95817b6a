"""The settings as operators see and change them, without secrets (docs/decisions.md: secrets at rest)."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import JsonValue, SecretStr
from pydantic_core import PydanticUndefined

from maestro.domain.errors import InvalidEdit, NeedsRestart
from maestro.domain.llm.accounts import last4
from maestro.domain.settings.live import RUNTIME, SettingsPage, SettingView
from maestro.domain.settings.section import Section
from maestro.operations.settings import Overrides
from maestro.settings.keys import KEYS, LEAVES, Key, limits_text
from maestro.settings.live import LiveSettings, OverlaidSettings, apply_overrides, find_unsettable_reason
from maestro.settings.loading import Loaded
from maestro.settings.model import Settings
from maestro.store.store import Store

SET = "set"

_TYPES = {bool: "boolean", int: "integer", float: "number", tuple: "list", str: "text"}
_LOGIN = re.compile(r"(?<=//)[^/?#\s]*@|(?<=[?&])[^=&\s]*=[^&\s]*")
"""The parts of an address that may be secret: the user with a password, and the values of a query."""

LONGEST_NOTE = 200
"""The number of characters after which a value in the audit log is cut."""


def settings_page(loaded: Loaded, overlaid: OverlaidSettings, version: int) -> SettingsPage:
    """Return all settings with their present values."""
    return SettingsPage(
        items=tuple(_key_view(key, loaded, overlaid) for key in LEAVES), version=version, file=str(loaded.file or "")
    )


def visible_value(value: Any) -> JsonValue:
    """Return a value without its secrets, as the settings page shows it."""
    if isinstance(value, SecretStr):
        return secret_hint(value.get_secret_value())
    if isinstance(value, Section):
        fields = {field.alias or name: getattr(value, name) for name, field in type(value).model_fields.items()}
        # Program arguments often contain keys, so no argument is shown.
        return {
            name: [SET for _ in below] if name == "args" else visible_value(below) for name, below in fields.items()
        }
    if isinstance(value, dict):
        return {name: visible_value(below) for name, below in value.items()}
    if isinstance(value, tuple):
        return [visible_value(below) for below in value]
    if isinstance(value, str | Path):
        return _LOGIN.sub("", str(value))
    plain: JsonValue = value
    return plain


def secret_hint(secret: str) -> str:
    """Return a hint by which operators recognise a secret: the end of a long secret, else ``set``."""
    if not secret:
        return ""
    return f"...{last4(secret)}" if last4(secret) else SET


def read_value(settings: Settings, key: Key) -> Any:
    return reduce(getattr, key.names, settings)


def _key_view(key: Key, loaded: Loaded, overlaid: OverlaidSettings) -> SettingView:
    default, value = key.field.default, read_value(overlaid.settings, key)
    if key.path in {"webui.password", "webui.viewerPassword"}:
        # No part of a password is shown: passwords are short, and users with read-only access see this page.
        value = SET if value.get_secret_value() else ""
    # The choices of a list setting are those of its items.
    annotation = key.field.annotation
    choices = get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
    return SettingView(
        key=key.path,
        value=visible_value(value),
        default=None if default is PydanticUndefined else visible_value(default),
        origin=RUNTIME if key.path in overlaid.values else loaded.origins.get(key.path, "default"),
        changes="live" if key.live else "restart",
        type="secret" if isinstance(default, SecretStr) else _TYPES[key.kind],
        limits=limits_text(key),
        choices=tuple(map(str, get_args(choices))) if get_origin(choices) is Literal else (),
        description=key.field.description or "",
        variable=key.variables[0],
        problem=overlaid.refused.get(key.path, ""),
    )


class EffectiveSettings:
    """The settings of a process as operators see and change them; it implements ``SettingsSource``."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live

    def build_page(self, store: Store) -> SettingsPage:
        self._live.apply_changes(store)
        return settings_page(self._live.loaded, self._live.overlaid, self._live.version)

    def merge_overrides(self, before: Overrides, changes: Mapping[str, JsonValue]) -> Overrides:
        """Return the overrides with the changes applied; raises ``NeedsRestart`` or ``InvalidEdit``."""
        loaded, changed = self._live.loaded, flatten_changes(changes)
        unsettable = {
            path: problem
            for path, value in changed.items()
            # A value that an earlier release stored may always be removed, even if the key is not settable now.
            if (problem := find_unsettable_reason(path, loaded)) and not (value is None and path in before)
        }
        if unsettable:
            are_keys = all(path in KEYS for path in unsettable)
            raise (NeedsRestart if are_keys else InvalidEdit)("; ".join(unsettable.values()))
        after = {path: value for path, value in {**before, **changed}.items() if value is not None}
        refused_before = apply_overrides(loaded, before).refused
        refused = apply_overrides(loaded, after).refused
        problems = {problem: path for path, problem in refused.items() if path in changed or path not in refused_before}
        if problems:
            raise InvalidEdit("; ".join(problems))
        return after

    def describe_changes(self, before: Overrides, after: Overrides) -> Iterator[tuple[str, str]]:
        """Yield each changed key, and its old and new value as a text for the audit log."""
        old, new = apply_overrides(self._live.loaded, before), apply_overrides(self._live.loaded, after)
        for path in sorted({*before, *after}):
            if before.get(path) != after.get(path):
                suffix = "" if path in after else " (taken back)"
                yield path, f"{_audit_value(old, path)} -> {_audit_value(new, path)}{suffix}"


def flatten_changes(changes: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the changes by dotted key, such as ``webui.port``; nested objects, as in the file, are flattened."""
    by_path: dict[str, JsonValue] = {}
    for path, value in changes.items():
        if isinstance(value, dict) and path not in KEYS and any(key.startswith(f"{path}.") for key in KEYS):
            by_path |= flatten_changes({f"{path}.{name}": below for name, below in value.items()})
        else:
            by_path[path] = value
    return by_path


def _audit_value(overlaid: OverlaidSettings, path: str) -> str:
    if path not in KEYS:
        return "unknown"
    text = json.dumps(visible_value(read_value(overlaid.settings, KEYS[path])), ensure_ascii=False)
    return text if len(text) <= LONGEST_NOTE else f"{text[:LONGEST_NOTE]}..."
