"""What an agent was after each of its edits, and what is different between two of them."""

import json
from collections.abc import Sequence

from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from maestro.domain.agents.agent import Agent, AgentStatus, AgentVersion, MemoryScope
from maestro.domain.agents.edits import AgentFields
from maestro.domain.values import View


class FieldChange(View):
    """A field, named as in JSON, with what it was and what it became."""

    field: str
    before: JsonValue
    after: JsonValue


def fields_of(agent: Agent, client: str) -> AgentFields:
    """Return what people can edit of an agent; ``client`` is the name of who pays, empty for nobody.

    What an earlier release let people write is not judged again.
    """
    return AgentFields.model_construct(
        name=agent.name,
        role=agent.role,
        description=agent.description,
        voice=agent.voice,
        quirks=tuple(json.loads(agent.quirks)),
        system_prompt=agent.system_prompt,
        model=agent.model,
        fallbacks=tuple(agent.fallbacks.split()),
        tools=_words(agent.tools),
        skills=_words(agent.skills),
        allow_users=_words(agent.allow_users),
        memory_scope=agent.memory_scope,
        client=client,
        daily_budget_usd=agent.daily_budget_usd,
        status=agent.status,
    )


def put_fields(agent: Agent, fields: AgentFields, client_id: int | None) -> None:
    """Write into an agent what people edited; ``client_id`` is that of the client the fields name."""
    agent.name = fields.name or agent.slug
    agent.role = fields.role
    agent.description = fields.description
    agent.voice = fields.voice
    agent.quirks = json.dumps(fields.quirks, ensure_ascii=False)
    agent.system_prompt = fields.system_prompt
    agent.model = fields.model
    agent.fallbacks = " ".join(fields.fallbacks)
    agent.tools = _text(fields.tools)
    agent.skills = _text(fields.skills)
    agent.allow_users = _text(fields.allow_users)
    agent.memory_scope = fields.memory_scope
    agent.client_id = client_id
    agent.daily_budget_usd = fields.daily_budget_usd
    agent.status = fields.status


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
