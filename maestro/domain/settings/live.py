"""Live settings: their versions, their views, and their values as texts of a form field."""

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
"""Where a value comes from that was set while Maestro runs."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_FLAGS = {"true": True, "false": False}


class SettingsVersion(SQLModel, table=True):
    """All values set at run time as of one change; ``values_json`` is a JSON object by key, as ``chat.pollMs``."""

    __tablename__ = "settings_versions"

    version: int | None = Field(default=None, primary_key=True)
    values_json: str
    actor: str
    changed_at: datetime = Field(sa_type=UtcDateTime)


class SettingView(View):
    """One key: the value that holds, where it comes from, and what it may be.

    ``origin`` is ``default``, ``file``, ``environment``, ``command line`` or ``runtime``. ``changes`` is ``live`` for a
    key that can be set while Maestro runs, else ``restart``. Of a secret only the last characters are shown, or that it
    is set. ``problem`` says why a value that was set at run time does not count.
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
    """All keys; ``version`` grows with each change at run time, ``file`` is the configuration that was read."""

    items: tuple[SettingView, ...]
    version: int
    file: str


def value_text(value: JsonValue) -> str:
    """Return a value as it stands in a field."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(map(value_text, value))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def parse_value(setting: SettingView, text: str) -> JsonValue:
    """Return what was typed as a value of this key.

    Raises ``InvalidEdit``, which never quotes the text: it may be a misplaced secret. Whether the value may be is for
    the rules of the key to say.
    """
    text = text.replace("\r\n", "\n")
    if setting.type == "boolean" and text.strip() in _FLAGS:
        return _FLAGS[text.strip()]
    if setting.type == "integer" and _WHOLE.fullmatch(text.strip()):
        return int(text)
    if setting.type == "number" and _NUMBER.fullmatch(text.strip()):
        return float(text)
    if setting.type == "list":
        return [_entry(setting, line.strip()) for line in text.split("\n") if line.strip()]
    if setting.type == "text":
        return text.strip()
    raise InvalidEdit(f"{setting.key}: expected {_EXPECTED[setting.type]}")


_EXPECTED = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "secret": "a reference in the configuration; a secret is not set here",
}


def _entry(setting: SettingView, line: str) -> JsonValue:
    """Read an entry of a list; it is a number where the list has numbers by default."""
    numbers = isinstance(setting.default, list) and any(isinstance(one, int | float) for one in setting.default)
    if numbers and not _NUMBER.fullmatch(line):
        raise InvalidEdit(f"{setting.key}: expected a number in each line")
    return float(line) if numbers else line
