"""Requests to create and change agents and bindings, with the rules shared by API, commands, tags and pages."""

import json
from typing import Annotated

from pydantic import BeforeValidator, Field

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentStatus, AgentVersion, BusyMode, MemoryScope, Permission
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.values import (
    ClientName,
    Description,
    DisplayName,
    Dollars,
    Fallbacks,
    Identifier,
    PeopleIds,
    PreferredModel,
    Quirks,
    SkillNames,
    Slug,
    SystemPrompt,
    ToolNames,
    View,
    Voice,
    Word,
)

MAX_REASON = 500

PayingClient = Annotated[ClientName, BeforeValidator(lambda name: "" if name is None else name)]
"""The name of the client that pays; null in a request means none."""

_LISTS = ("fallbacks", "tools", "skills", "allow_users")
"""Fields that the table stores as words separated by blanks."""


class AgentFields(View):
    """The editable fields of an agent, used by configuration, pages, commands and directives.

    A null field means the default that all agents share; an empty ``name`` means the slug. The dashboard's form shows a
    field with a ``title`` as a line of text, with the first of its ``examples`` as the placeholder.
    """

    name: DisplayName = Field(
        default="", title="Name that users see", examples=["the slug"], description="the name that users see"
    )
    role: Word = Field(default="assistant", description="conductor, assistant, coder, architect or another role")
    description: Description = Field(default="", description="what the agent is for")
    voice: Voice = Field(
        default="",
        title="How the agent speaks",
        examples=["casual, professional …"],
        description="how the agent speaks, such as casual or professional",
    )
    language: DisplayName = Field(
        default="",
        title="Language of the agent's answers",
        examples=["that of the message"],
        description="the language of the agent's answers, such as German; '' for that of the message",
    )
    quirks: Quirks = Field(default=(), description="a sentence on a habit of the agent's speech; '' for none")
    system_prompt: SystemPrompt = ""
    model: PreferredModel = Field(default="", description="the preferred model; '' for that of the account")
    fallbacks: Fallbacks = Field(default=(), description="models to try if the preferred model fails")
    tools: ToolNames | None = Field(default=None, description="tools that the agent may call; '' for none")
    skills: SkillNames | None = Field(default=None, description="skills that the agent may get; '' for none")
    allow_users: PeopleIds | None = Field(
        default=None, description="users besides owners that may talk to the agent, as platform:userId"
    )
    memory_scope: MemoryScope | None = Field(default=None, description="where the agent recalls its facts")
    client: PayingClient = Field(default="", description="the client that pays for the agent; '' for none")
    daily_budget_usd: Dollars | None = Field(default=None, description="the most US dollars per day; 0: no limit")
    status: AgentStatus = AgentStatus.ACTIVE


class NewAgent(AgentFields):
    """A request to create an agent."""

    slug: Slug


class AgentChange(AgentFields):
    """Changes to an agent; only the fields that are present in the request change the agent.

    ``version`` is the version that the editor saw: the change is refused if the agent has a newer one. ``force`` allows
    archiving or demoting the last conductor.
    """

    version: int | None = Field(default=None, ge=1)
    force: bool = False

    @property
    def given_fields(self) -> frozenset[str]:
        """The names of the agent's fields that the request contains."""
        return frozenset(self.model_fields_set & AgentFields.model_fields.keys())


class Rollback(View):
    """A request to restore an earlier version of an agent; ``force`` is as in ``AgentChange``."""

    version: int = Field(ge=1)
    reason: str = Field(default="", max_length=MAX_REASON)
    force: bool = False


class BindingFields(View):
    """The editable fields of the binding of a channel to an agent."""

    permission: Permission = Field(default=Permission.FULL, description="only full lets users talk to the agent")
    key_by_user: bool = Field(default=False, description="give each user a separate conversation")
    busy: BusyMode | None = Field(default=None, description="what happens to a message while the agent is busy")
    allow_bots: bool = Field(default=False, description="answer other bots in the channel")
    client: PayingClient = Field(default="", description="the name of the client that pays for answers in the channel")


class NewBinding(BindingFields):
    """A request to bind a channel to an agent that the caller names separately."""

    platform: Word
    account: Identifier = DEFAULT_ACCOUNT
    channel: Identifier


class BoundChannel(NewBinding):
    """A request to bind a channel to an agent, which ``agent`` names by its slug."""

    agent: Slug


class BindingChange(BindingFields):
    """Changes to a binding; only fields in the request change it. ``agent`` moves the channel to another agent."""

    agent: Slug = ""

    @property
    def binding_values(self) -> dict[str, object]:
        """The changed fields of the binding by name, without ``agent``."""
        return {name: getattr(self, name) for name in self.model_fields_set & BindingFields.model_fields.keys()}


def apply_change(before: AgentFields, change: AgentChange) -> AgentFields:
    """Return an agent's fields after a change."""
    return before.model_copy(update={name: getattr(change, name) for name in change.given_fields})


def removes_last_conductor(agent: Agent, after: AgentFields, others: int) -> bool:
    """Return whether a change archives or demotes the last conductor; ``others`` counts other active conductors."""
    conducts = agent.role == CONDUCTOR and agent.status is AgentStatus.ACTIVE
    stays = after.role == CONDUCTOR and after.status is not AgentStatus.ARCHIVED
    return conducts and not stays and others == 0


def agent_fields(agent: Agent, client: str) -> AgentFields:
    """Return an agent's editable fields, not validated, because an earlier release may have accepted other values."""
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
    """Return an agent's fields at a version, not validated: an earlier release may have accepted other values."""
    stored = json.loads(version.snapshot)
    lists = {name: tuple(value) for name, value in stored.items() if isinstance(value, list)}
    scope = MemoryScope(stored["memoryScope"]) if stored["memoryScope"] else None
    return AgentFields.model_construct(
        **{**stored, **lists, "memoryScope": scope, "status": AgentStatus(stored["status"])}
    )
