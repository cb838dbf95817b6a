"""A parser for the fields in a tag: lines of ``key: value``, as a conductor writes them."""

import json
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from math import isinf

from pydantic import JsonValue

from maestro.domain.errors import InvalidEdit

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(?!//)(.*)", re.DOTALL)
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")
_SINGLE_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_LONG_NUMBER = re.compile(r"[0-9]{15,}")
_BLOCK_MARKS = frozenset({"|", "|-", "|+", ">", ">-", ">+"})
_FENCES = ("```", "~~~")
_DEEPEST = 4


def read_fields(body: str, texts: Collection[str] = ()) -> Mapping[str, JsonValue]:
    """Return the fields of a tag by key; keys are in lower case, with ``_`` between words.

    A line that is indented or has no ``key:`` continues the previous value. A value in single quotes is the quoted
    text. A value that is JSON is decoded, except numbers of 15 digits and more, which are ids and stay text. Any other
    value is text. After a key without a value, lines of ``- ...`` are a list, and lines of ``key: value`` are nested
    fields. The values of the keys in ``texts`` are always text. The whole body may be one JSON object or a fenced code
    block.

    Raises ``InvalidEdit`` for text before the first key and for a key that occurs twice.
    """
    lines = body.strip().split("\n")
    is_fenced = len(lines) > 1 and lines[0].startswith(_FENCES) and lines[-1].strip() in _FENCES
    text = textwrap.dedent("\n".join(lines[1:-1] if is_fenced else lines)).strip("\n")
    whole = _decode_json(text)
    if isinstance(whole, dict):
        return {field_key(key): value for key, value in whole.items()}
    return _read_field_lines(text, texts, _DEEPEST)


def field_key(written: str) -> str:
    """Return the name of a field as a model wrote it, in lower case with ``_`` between words."""
    return _WORD_BREAK.sub("_", written).lower()


def _read_field_lines(text: str, texts: Collection[str], depth: int) -> dict[str, JsonValue]:
    entries: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        start = _KEY.fullmatch(line)
        if start is not None:
            entries.append((field_key(start[1]), [start[2].strip()]))
        elif entries:
            entries[-1][1].append(line.rstrip())
        elif line.strip():
            raise InvalidEdit("the fields begin with a line that has no key; write each field as key: value")
    fields: dict[str, JsonValue] = {}
    for key, lines in entries:
        if key in fields:
            raise InvalidEdit(f"the field {key} is given twice; write it once")
        fields[key] = _text_value(lines) if key in texts else _decoded_value(lines, depth)
    return fields


def _raw_value(lines: Sequence[str]) -> str:
    """Return a value as the model wrote it; after a YAML block mark (``|``, ``>``), the lines below the mark."""
    first, *rest = lines
    below = textwrap.dedent("\n".join(rest)).rstrip("\n")
    if first in _BLOCK_MARKS:
        below = below.lstrip("\n")
        return " ".join(below.split("\n")) if first.startswith(">") else below
    return f"{first}\n{below}".strip()


def _text_value(lines: Sequence[str]) -> str:
    """Return a value as text, without its quotes."""
    text = _raw_value(lines)
    quoted = _decode_json(text)
    return quoted if isinstance(quoted, str) else _without_single_quotes(text)


def _without_single_quotes(text: str) -> str:
    """Return a text without YAML single quotes; in them, two quotes stand for one."""
    quoted = _SINGLE_QUOTED.fullmatch(text)
    return quoted[1].replace("''", "'") if quoted else text


def _decoded_value(lines: Sequence[str], depth: int) -> JsonValue:
    """Return a value in the type that its form shows: JSON, a list, nested fields or text."""
    text = _raw_value(lines)
    if lines[0] in _BLOCK_MARKS:
        return text
    below = [line for line in text.split("\n") if line.strip()]
    if lines[0] or depth == 0 or not below:
        return _scalar_value(text)
    if below[0].startswith("- "):
        items = re.split(r"^- ", "\n".join(below), flags=re.MULTILINE)[1:]
        texts = (textwrap.dedent(f"  {item}").rstrip("\n") for item in items)
        return [_read_field_lines(item, (), depth - 1) if _KEY.match(item) else _scalar_value(item) for item in texts]
    is_nested = all(line[0].isspace() or _KEY.fullmatch(line) for line in below)
    return _read_field_lines(text, (), depth - 1) if is_nested else _scalar_value(text)


def _scalar_value(text: str) -> JsonValue:
    """Return the JSON value of a text, or the text itself if it is not JSON."""
    if _LONG_NUMBER.fullmatch(text):
        return text
    value = _decode_json(text)
    return _without_single_quotes(text) if value is None and text != "null" else value


def _decode_json(text: str) -> JsonValue:
    """Return the JSON value of a text; None for ``null``, for invalid JSON, NaN and infinite numbers."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float)
    except (ValueError, RecursionError):
        return None
    return value


def _refuse_constant(constant: str) -> float:
    raise ValueError(constant)


def _finite_float(written: str) -> float:
    value = float(written)
    if isinf(value):
        raise ValueError(written)
    return value
