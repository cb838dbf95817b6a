"""Versions of an agent: its fields after each edit, and line-by-line differences between versions."""

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import chain

from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from maestro.domain.agents.agent import Agent, AgentStatus, AgentVersion, MemoryScope
from maestro.domain.agents.edits import AgentFields
from maestro.domain.values import Value, View

_LISTS = ("fallbacks", "tools", "skills", "allow_users")
"""Fields that the table stores as words separated by blanks."""

CONTEXT_LINES = 2
"""Unchanged lines shown before and after a difference."""
MOST_LINES = 2_000
"""The most lines that are compared one by one; longer texts are shown as removed and added in full."""


class FieldChange(View):
    """A changed field, by its JSON name, with its values before and after."""

    field: str
    before: JsonValue
    after: JsonValue


def agent_fields(agent: Agent, client: str) -> AgentFields:
    """Return the editable fields of an agent; ``client`` is the name of the client that pays, empty for none.

    The values are not validated again: an earlier release may have accepted values that this release rejects.
    """
    stored = {name: getattr(agent, name) for name in AgentFields.model_fields.keys() & Agent.model_fields.keys()}
    lists = {name: tuple(stored[name].split()) if stored[name] is not None else None for name in _LISTS}
    return AgentFields.model_construct(
        **{**stored, **lists, "quirks": tuple(json.loads(agent.quirks)), "client": client}
    )


def write_fields(agent: Agent, fields: AgentFields, client_id: int | None) -> None:
    """Write edited fields into an agent's row; ``client_id`` is the id of the client that the fields name."""
    values = dict(fields)
    lists = {name: " ".join(values[name]) if values[name] is not None else None for name in _LISTS}
    quirks = json.dumps(fields.quirks, ensure_ascii=False)
    for name, value in {**values, **lists, "quirks": quirks, "name": fields.name or agent.slug}.items():
        if name in Agent.model_fields:
            setattr(agent, name, value)
    agent.client_id = client_id


def version_fields(version: AgentVersion) -> AgentFields:
    """Return an agent's fields at a version, without validation: an earlier release may have accepted the values."""
    stored = json.loads(version.snapshot)
    lists = {name: tuple(value) for name, value in stored.items() if isinstance(value, list)}
    scope = MemoryScope(stored["memoryScope"]) if stored["memoryScope"] else None
    return AgentFields.model_construct(
        **{**stored, **lists, "memoryScope": scope, "status": AgentStatus(stored["status"])}
    )


def diff_fields(before: AgentFields | None, after: AgentFields) -> tuple[FieldChange, ...]:
    """Return the changed fields in their order; without ``before`` (the first version) all fields, with null before."""
    old = before.model_dump(mode="json", by_alias=False) if before is not None else {}
    new = after.model_dump(mode="json", by_alias=False)
    return tuple(
        FieldChange(field=to_camel(name), before=old.get(name), after=value)
        for name, value in new.items()
        if before is None or old[name] != value
    )


class LineKind(StrEnum):
    """The kind of a line in a diff; ``GAP`` replaces unchanged lines that are left out."""

    SAME = "same"
    GONE = "gone"
    NEW = "new"
    GAP = "gap"


class DiffLine(Value):
    """A line of a diff with its kind."""

    kind: LineKind
    text: str


def diff_field_lines(change: FieldChange, *, is_first: bool = False) -> tuple[DiffLine, ...]:
    """Return the removed and added lines of a changed field, with unchanged lines around them.

    A list is compared entry by entry. A null value is shown as "(the common setting)". For the first version, all lines
    are added ones.
    """
    before, after = [] if is_first else _value_lines(change.before), _value_lines(change.after)
    if max(len(before), len(after)) > MOST_LINES:
        return tuple(chain(_lines_of_kind(LineKind.GONE, before), _lines_of_kind(LineKind.NEW, after)))
    return tuple(_compare_lines(before, after))


def _compare_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[DiffLine]:
    groups = SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT_LINES)
    shown_until = 0
    for group in groups:
        if group[0][1] > shown_until:
            yield DiffLine(kind=LineKind.GAP, text="")
        for kind, begin, end, new_begin, new_end in group:
            if kind == "equal":
                yield from _lines_of_kind(LineKind.SAME, before[begin:end])
                continue
            yield from _lines_of_kind(LineKind.GONE, before[begin:end])
            yield from _lines_of_kind(LineKind.NEW, after[new_begin:new_end])
        shown_until = group[-1][2]
    if shown_until < len(before):
        yield DiffLine(kind=LineKind.GAP, text="")


def _lines_of_kind(kind: LineKind, lines: Sequence[str]) -> Iterator[DiffLine]:
    return (DiffLine(kind=kind, text=line) for line in lines)


def _value_lines(value: JsonValue) -> list[str]:
    """Return a value as lines; an empty text has none."""
    if value is None:
        return ["(the common setting)"]
    if isinstance(value, list):
        return [str(entry) for entry in value] or ["(none)"]
    return str(value).splitlines()
