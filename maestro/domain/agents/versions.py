"""What an agent was after each of its edits, and what is different between two of them."""

import json
from collections.abc import Sequence

from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from maestro.domain.agents.agent import Agent, AgentStatus, AgentVersion, MemoryScope
from maestro.domain.agents.edits import AgentFields
from maestro.domain.values import View

_LISTS = ("fallbacks", "tools", "skills", "allow_users")
"""Fields that a row holds as words with blanks between them."""


class FieldChange(View):
    """A field, named as in JSON, with what it was and what it became."""

    field: str
    before: JsonValue
    after: JsonValue


def fields_of(agent: Agent, client: str) -> AgentFields:
    """Return the fields of an agent; ``client`` is the name of the client who pays, empty for none.

    They are not validated again: an earlier release may have accepted them.
    """
    stored = {name: getattr(agent, name) for name in AgentFields.model_fields.keys() & Agent.model_fields.keys()}
    lists = {name: _words(stored[name]) for name in _LISTS}
    return AgentFields.model_construct(
        **{**stored, **lists, "quirks": tuple(json.loads(agent.quirks)), "client": client}
    )


def put_fields(agent: Agent, fields: AgentFields, client_id: int | None) -> None:
    """Write edited fields into an agent; ``client_id`` is that of the client the fields name."""
    values = dict(fields)
    lists = {name: _text(values[name]) for name in _LISTS}
    quirks = json.dumps(fields.quirks, ensure_ascii=False)
    for name, value in {**values, **lists, "quirks": quirks, "name": fields.name or agent.slug}.items():
        if name in Agent.model_fields:
            setattr(agent, name, value)
    agent.client_id = client_id


def snapshot(fields: AgentFields) -> str:
    """Return the fields as the text that is kept."""
    return fields.model_dump_json()


def fields_at(version: AgentVersion) -> AgentFields:
    """Return what the agent was after that edit; what an earlier release let people write is not judged again."""
    kept = json.loads(version.snapshot)
    lists = {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
    scope = MemoryScope(kept["memoryScope"]) if kept["memoryScope"] else None
    return AgentFields.model_construct(**{**kept, **lists, "memoryScope": scope, "status": AgentStatus(kept["status"])})


def diff(before: AgentFields | None, after: AgentFields) -> tuple[FieldChange, ...]:
    """Return what is different, in the order of the fields; before the first version there was nothing (null)."""
    old = before.model_dump(mode="json", by_alias=False) if before is not None else {}
    new = after.model_dump(mode="json", by_alias=False)
    return tuple(
        FieldChange(field=to_camel(name), before=old.get(name), after=value)
        for name, value in new.items()
        if before is None or old[name] != value
    )


def _words(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split()) if text is not None else None


def _text(words: Sequence[str] | None) -> str | None:
    return " ".join(words) if words is not None else None
