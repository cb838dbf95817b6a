"""Views of agents, versions and bindings for operators, and line-by-line differences between versions."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import chain

from pydantic import ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

from maestro.domain.agents.agent import Agent, AgentStatus, AgentVersion, BusyMode, Permission
from maestro.domain.agents.edits import AgentFields, version_fields
from maestro.domain.values import Page, Value, View

MOST_LINES = 2_000
"""The most lines that are compared one by one; longer texts are shown as removed and added in full."""


class FieldChange(View):
    """A changed field, by its JSON name, with its values before and after."""

    field: str
    before: JsonValue
    after: JsonValue


def diff_fields(before: AgentFields | None, after: AgentFields) -> tuple[FieldChange, ...]:
    """Return the fields that differ, in their order; without ``before`` (the first version), all change from null."""
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
    # Two unchanged lines are shown before and after each difference.
    groups = SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(2)
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
    """Return the lines of a field's value; an empty text has no lines."""
    if value is None:
        return ["(the common setting)"]
    if isinstance(value, list):
        return [str(entry) for entry in value] or ["(none)"]
    return str(value).splitlines()


class AgentSummary(View):
    """An agent in a list; an empty ``model`` means the provider account's model, ``updatedAt`` is the last edit."""

    id: int
    slug: str
    name: str
    role: str
    description: str
    model: str
    status: AgentStatus
    version: int
    updated_at: datetime
    configured: bool


class Binding(View):
    """A binding of a channel to an agent; the configuration file controls it if it is ``configured``."""

    id: int
    agent: str
    platform: str
    account: str
    channel: str
    permission: Permission
    key_by_user: bool
    busy: BusyMode | None
    allow_bots: bool
    client: str
    configured: bool


class BindingPage(Page[Binding]):
    """A page of bindings, oldest first."""


class AgentDetail(AgentFields, AgentSummary):
    """An agent with its editable fields and bindings; a null field means the default that all agents share."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    created_at: datetime
    channels: tuple[Binding, ...]


class AgentPage(Page[AgentSummary]):
    """A page of agents by slug."""


class VersionSummary(View):
    """An edit of an agent: its author, time and reason, and the changed fields (all fields for the first version)."""

    version: int
    at: datetime
    actor: str
    reason: str
    changed: tuple[str, ...]


class VersionPage(Page[VersionSummary]):
    """A page of an agent's edits, newest first."""


class VersionDetail(View):
    """An agent at a version, with the changes since version ``against``, or since an empty agent if that is null."""

    version: int
    at: datetime
    actor: str
    reason: str
    against: int | None
    changes: tuple[FieldChange, ...]
    agent: AgentFields


def agent_page(agents: Sequence[Agent], cursor: str | None, limit: int) -> AgentPage:
    """Return a page of up to ``limit`` agents, sorted by slug; ``cursor`` is the last slug of the previous page."""
    following = [agent for agent in agents if cursor is None or agent.slug > cursor]
    page = tuple(map(AgentSummary.model_validate, following[:limit]))
    return AgentPage(items=page, next=page[-1].slug if len(following) > limit else None)


def agent_detail(agent: Agent, fields: AgentFields, channels: Sequence[Binding]) -> AgentDetail:
    """Return an agent with its editable fields and its bindings."""
    # The values are not validated: an earlier release may have accepted values that this release rejects.
    columns = agent.model_dump(include={"id", "slug", "version", "updated_at", "configured", "created_at"})
    return AgentDetail.model_construct(**{**columns, **dict(fields), "channels": tuple(channels)})


def version_page(versions: Sequence[AgentVersion], limit: int) -> VersionPage:
    """Return a page of up to ``limit`` versions, newest first; a further version is only compared with the last."""
    items = tuple(
        VersionSummary.from_row(edit, changed=tuple(change.field for change in _field_changes(edit, before)))
        for edit, before in zip(versions[:limit], [*versions[1:], None], strict=False)
    )
    return VersionPage(items=items, next=str(items[-1].version) if len(versions) > limit else None)


def version_detail(version: AgentVersion, against: AgentVersion | None) -> VersionDetail:
    """Return the view of a version, with its differences from version ``against``."""
    return VersionDetail.from_row(
        version,
        against=against.version if against is not None else None,
        changes=_field_changes(version, against),
        agent=version_fields(version),
    )


def _field_changes(version: AgentVersion, against: AgentVersion | None) -> tuple[FieldChange, ...]:
    return diff_fields(version_fields(against) if against is not None else None, version_fields(version))
