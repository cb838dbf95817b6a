"""Settings that can change at run time: stored versions, views, and conversion to and from form text."""

import json
import re
from datetime import datetime
from typing import Literal

from pydantic import JsonValue
from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime
from maestro.domain.errors import InvalidEdit
from maestro.domain.values import View

RUNTIME = "runtime"
"""The origin of a value that was set while Maestro runs."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")
_BOOLEANS = {"true": True, "false": False}
_EXPECTED = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "secret": "a reference in the configuration file; a secret cannot be set at run time",
}


class SettingsVersion(SQLModel, table=True):
    """All values set at run time, as of one change; ``values_json`` maps keys such as ``chat.pollMs`` to values."""

    __tablename__ = "settings_versions"

    version: int | None = Field(default=None, primary_key=True)
    values_json: str
    actor: str
    changed_at: datetime = Field(sa_type=UtcDateTime)


class SettingView(View):
    """A key of the settings with its current value, its origin and its limits.

    ``origin`` is ``default``, ``file``, ``environment``, ``command line`` or ``runtime``. ``changes`` is ``live`` for a
    key that can be set while Maestro runs, else ``restart``. The value of a secret is its last characters or ``set``.
    ``problem`` says why a value that was set at run time is ignored.
    """

    key: str
    value: JsonValue
    default: JsonValue
    origin: str
    changes: Literal["live", "restart"]
    type: str
    limits: str
    choices: tuple[str, ...]
    description: str
    variable: str
    problem: str = ""


class SettingsPage(View):
    """All keys; ``version`` grows with each change at run time, ``file`` is the path of the configuration file."""

    items: tuple[SettingView, ...]
    version: int
    file: str


def value_text(value: JsonValue) -> str:
    """Return a value as the text of a form field."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(map(value_text, value))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def parse_value(setting: SettingView, text: str) -> JsonValue:
    """Parse the text of a form field as a value of this key.

    Raises ``InvalidEdit`` without quoting the text, which may be a misplaced secret. Only the type is checked here; the
    validation of the key's section checks limits.
    """
    text = text.replace("\r\n", "\n").strip()
    if setting.type == "boolean" and text in _BOOLEANS:
        return _BOOLEANS[text]
    if setting.type == "integer" and re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    if setting.type == "number" and _NUMBER.fullmatch(text):
        return float(text)
    if setting.type == "list":
        return _parse_list(setting, text)
    if setting.type == "text":
        return text
    raise InvalidEdit(f"{setting.key}: expected {_EXPECTED[setting.type]}")


def _parse_list(setting: SettingView, text: str) -> JsonValue:
    """Parse each line as an entry of a list; entries are numbers if the default list contains numbers."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not (isinstance(setting.default, list) and any(isinstance(entry, int | float) for entry in setting.default)):
        return [*lines]
    if not all(map(_NUMBER.fullmatch, lines)):
        raise InvalidEdit(f"{setting.key}: expected a number in each line")
    return [*map(float, lines)]
