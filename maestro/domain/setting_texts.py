"""Settings as they are typed into a field, and back: one line for each entry of a list."""

import json
import re

from pydantic import JsonValue

from maestro.domain.errors import InvalidEdit
from maestro.domain.live import SettingView

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_FLAGS = {"true": True, "false": False}


def written(value: JsonValue) -> str:
    """Return a value as it stands in a field."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(map(written, value))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def typed_value(setting: SettingView, text: str) -> JsonValue:
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
