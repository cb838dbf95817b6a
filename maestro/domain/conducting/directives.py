"""A parser for a conductor's directives: it turns tags into values with the same checks as the API."""

import json
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Literal

from pydantic import JsonValue

from maestro.domain.agents.edits import AgentChange, AgentFields, NewAgent, NewBinding
from maestro.domain.errors import InvalidEdit
from maestro.domain.llm.budgets import NewClient
from maestro.domain.messages import DEFAULT_ACCOUNT, Address
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.tags.grammar import Tag, TagName
from maestro.domain.values import read

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(?!//)(.*)", re.DOTALL)
_BLOCK_MARKS = frozenset({"|", "|-", "|+", ">", ">-", ">+"})
_FENCES = ("```", "~~~")
_DEEPEST = 4

HERE = "here"
"""The word by which a conductor names the channel in which the user asked."""

_NOT_IN_DIRECTIVES = {"status", "memory_scope", "daily_budget_usd"}
"""Fields of an agent that are missing in directives, or have another name there."""
AGENT_FIELDS = (
    *(name for name in AgentFields.model_fields if name not in _NOT_IN_DIRECTIVES),
    "daily_budget",
    "channels",
)
_SCHEDULE = "agent", "name", "schedule", "prompt", "timezone", "jitter", "platform", "account", "channel", "thread"
FIELDS: Mapping[TagName, Sequence[str]] = {
    TagName.CREATE_AGENT: ("slug", *AGENT_FIELDS),
    TagName.UPDATE_AGENT: (*AGENT_FIELDS, "status"),
    TagName.CREATE_CRON: _SCHEDULE,
    TagName.CREATE_HEARTBEAT: (*_SCHEDULE, "script"),
    TagName.CREATE_CLIENT: ("name", "slug", "plan", "daily_budget"),
}
"""The fields of each tag, as the prompt lists them."""

_ALIASES = {
    "allowed_tools": "tools",
    "daily_budget_usd": "daily_budget",
    "permissions": "permission",
    "channel_id": "channel",
    "id": "channel",
    "jitter_seconds": "jitter",
    "time_zone": "timezone",
    "zone": "timezone",
}
_LISTS = frozenset({"fallbacks", "tools", "skills", "allow_users"})
_TEXT_KEYS = (
    frozenset(name for names in FIELDS.values() for name in names)
    - _LISTS
    - {"quirks", "channels", "daily_budget", "jitter", "script"}
)


def read_fields(body: str, text_keys: Collection[str] = ()) -> Mapping[str, JsonValue]:
    """Return the fields of a tag by key; keys are in lower case, with ``_`` between words.

    A line that is indented or has no ``key:`` continues the previous value. A value in single quotes is the quoted
    text. A value that is JSON is decoded, except numbers of 15 digits and more, which are ids and stay text. Any other
    value is text. After a key without a value, lines of ``- ...`` are a list, and lines of ``key: value`` are nested
    fields. The values of the keys in ``text_keys`` are always text. The whole body may be one JSON object or a fenced
    code block.

    Raises ``InvalidEdit`` for text before the first key and for a key that occurs twice.
    """
    lines = body.strip().split("\n")
    is_fenced = len(lines) > 1 and lines[0].startswith(_FENCES) and lines[-1].strip() in _FENCES
    text = textwrap.dedent("\n".join(lines[1:-1] if is_fenced else lines)).strip("\n")
    whole = _decode_json(text)
    if isinstance(whole, dict):
        return {field_key(key): value for key, value in whole.items()}
    return _read_field_lines(text, text_keys, _DEEPEST)


def field_key(written: str) -> str:
    """Return the name of a field as a model wrote it, in lower case with ``_`` between words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", written).lower()


def _read_field_lines(text: str, text_keys: Collection[str], depth: int) -> dict[str, JsonValue]:
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
        fields[key] = _text_value(lines) if key in text_keys else _decoded_value(lines, depth)
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
    text = _raw_value(lines)
    quoted = _decode_json(text)
    return quoted if isinstance(quoted, str) else unquote_single(text)


def unquote_single(text: str) -> str:
    """Return a text without its YAML single quotes; inside them, two single quotes mean one."""
    quoted = re.fullmatch(r"'((?:[^']|'')*)'", text)
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
    if re.fullmatch(r"[0-9]{15,}", text):
        return text
    value = _decode_json(text)
    return unquote_single(text) if value is None and text != "null" else value


def _decode_json(text: str) -> JsonValue:
    """Return the JSON value of a text; None for ``null``, for invalid JSON, NaN and infinite numbers."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_finite_float, parse_float=_finite_float)
    except (ValueError, RecursionError):
        return None
    return value


def _finite_float(written: str) -> float:
    value = float(written)
    if not isfinite(value):
        raise ValueError(written)
    return value


class _NewClient(NewClient):
    plan: Literal["per_task", "monthly", "prepaid"] = "per_task"


def read_agent_creation(tag: Tag, asked_in: Address) -> tuple[NewAgent, tuple[NewBinding, ...]]:
    """Return the agent of a CREATE_AGENT tag and the channels to bind; raises ``InvalidEdit`` for invalid fields."""
    fields = _non_empty_fields(tag)
    channels = _pop_bindings(fields, asked_in)
    return read(NewAgent, _clean_slug(fields, "slug")), channels


def read_agent_update(tag: Tag, asked_in: Address) -> tuple[AgentChange, tuple[NewBinding, ...]]:
    """Return the change of an UPDATE_AGENT tag and channels to bind; raises ``InvalidEdit``, also without fields."""
    fields = _api_values(_tag_fields(tag))
    channels = _pop_bindings(fields, asked_in)
    if not fields and not channels:
        raise InvalidEdit(f"no field to change is given; the fields are {', '.join(FIELDS[tag.name])}")
    return read(AgentChange, fields), channels


def read_schedule_creation(tag: Tag, asked_in: Address) -> NewSchedule:
    """Return the schedule of a CREATE_CRON or CREATE_HEARTBEAT tag; raises ``InvalidEdit`` for invalid fields.

    Without a channel, the agent answers in the channel and thread in which the user asked the conductor.
    """
    fields = _non_empty_fields(tag)
    here = _text_field(fields, "channel") in ("", HERE)
    thread = _text_field(fields, "thread") or (asked_in.thread if here else "")
    if "jitter" in fields:
        fields["jitter_seconds"] = fields.pop("jitter")
    return read(NewSchedule, {**_clean_slug(fields, "agent"), **_address_fields(fields, asked_in), "thread": thread})


def read_client_creation(tag: Tag) -> NewClient:
    """Return the client of a CREATE_CLIENT tag; raises ``InvalidEdit`` for invalid fields."""
    fields = _non_empty_fields(tag)
    if "plan" in fields:
        fields["plan"] = str(fields["plan"]).lower().replace("-", "_").replace(" ", "_")
    return read(_NewClient, fields)


def normalize_slug(written: str) -> str:
    """Return a slug from a model's text, which may begin with ``@`` and have capitals."""
    return written.strip().removeprefix("@").lower()


def _clean_slug(fields: Mapping[str, JsonValue], name: str) -> dict[str, JsonValue]:
    """Return a copy of the fields in which the slug in the field ``name``, if present, is normalized."""
    return {**fields, name: normalize_slug(str(fields[name]))} if name in fields else {**fields}


def _non_empty_fields(tag: Tag) -> dict[str, JsonValue]:
    """Return the fields of a tag that creates something; empty fields are treated as absent."""
    return _api_values({name: value for name, value in _tag_fields(tag).items() if value not in ("", None)})


def _tag_fields(tag: Tag) -> dict[str, JsonValue]:
    """Return the fields of a tag; ``null`` in a text field becomes an empty text."""
    written = {**read_fields(tag.body, _TEXT_KEYS)}
    personality = written.pop("personality", None)
    if personality is not None:
        written |= _require_object(personality, "personality", "voice and quirks")
    fields = rename_aliases(written)
    _check_field_names(fields, FIELDS[tag.name])
    return {name: "" if name in _TEXT_KEYS and value == "null" else value for name, value in fields.items()}


def _api_values(fields: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the fields with the names and the types of the API's fields."""
    for name in (_LISTS | {"quirks"}) & fields.keys():
        value = _split_bracket_list(fields[name])
        if isinstance(value, str) and name == "quirks":  # The field "quirks" contains sentences, one per line.
            value = [line.strip().removeprefix("- ") for line in value.splitlines() if line.strip()]
        elif isinstance(value, str):  # Other list fields contain names, separated by commas or white space.
            value = [*value.replace(",", " ").split()]
        fields[name] = value
    if "daily_budget" in fields:
        budget = fields.pop("daily_budget")
        fields["daily_budget_usd"] = None if budget == "" else budget
    return fields


def rename_aliases(written: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {}
    for key, value in written.items():
        name = _ALIASES.get(key, key)
        if name in fields:
            raise InvalidEdit(f"the field {name} is given twice; write it once")
        fields[name] = value
    return fields


def _check_field_names(fields: Mapping[str, JsonValue], names: Sequence[str]) -> None:
    unknown = next((name for name in fields if name not in names), None)
    if unknown is not None:
        raise InvalidEdit(
            f"there is no field {unknown[:40]}; the fields are {', '.join(names)}. "
            "Indent the further lines of a longer text"
        )


def _require_object(value: JsonValue, name: str, example: str) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise InvalidEdit(f"{name}: expected fields, such as {example}")
    return value


def _split_bracket_list(value: JsonValue) -> JsonValue:
    """Return a text in brackets as a list, because models omit the quotation marks of JSON."""
    if not (isinstance(value, str) and value.startswith("[") and value.endswith("]")):
        return value
    return [part.strip().strip("\"'") for part in value[1:-1].split(",") if part.strip()]


def _pop_bindings(fields: dict[str, JsonValue], asked_in: Address) -> tuple[NewBinding, ...]:
    """Remove the channels from the fields and return them as bindings."""
    written = _split_bracket_list(fields.pop("channels", None))
    bindings = []
    for channel in written if isinstance(written, list) else [written] if written not in (None, "") else []:
        binding: JsonValue = {"channel": channel} if isinstance(channel, str | int) else channel
        named = _require_object(binding, "channels", "platform and channel")
        values = rename_aliases({field_key(name): value for name, value in named.items()})
        _check_field_names(values, ("platform", "channel", "account", "permission", "key_by_user"))
        bindings.append(read(NewBinding, {**values, **_address_fields(values, asked_in)}))
    return tuple(bindings)


def _address_fields(fields: Mapping[str, JsonValue], asked_in: Address) -> dict[str, JsonValue]:
    """Return platform, account and channel; missing values are those of the channel where the user asked."""
    channel = _text_field(fields, "channel")
    platform = _text_field(fields, "platform") or asked_in.platform
    if channel in ("", HERE):
        if platform != asked_in.platform:
            raise InvalidEdit(f"channel: name a channel on {platform[:40]}")
        return {"platform": platform, "account": asked_in.account, "channel": asked_in.channel}
    same = asked_in.account if platform == asked_in.platform else DEFAULT_ACCOUNT
    return {"platform": platform, "account": _text_field(fields, "account") or same, "channel": channel}


def _text_field(fields: Mapping[str, JsonValue], name: str) -> str:
    """Return a field as text, also a number, as models often write ids; raises ``InvalidEdit`` for other types."""
    value = fields.get(name, "")
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value).strip()
    raise InvalidEdit(f"{name}: expected a text")
