"""What people make of agents and of the channels they answer in: the one set of rules for API, commands and tags."""

from pydantic import Field, field_validator

from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentStatus, BusyMode, MemoryScope, Permission
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.values import View
from maestro.domain.words import (
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
    Voice,
    Word,
)

MAX_REASON = 500


class AgentFields(View):
    """All that people can edit of an agent; None is what everybody has, and ``client`` the name of who pays.

    ``name`` is empty for the slug, ``model`` for that of the account; ``daily_budget_usd`` is in US dollars, 0 for no
    limit.
    """

    name: DisplayName = ""
    role: Word = "assistant"
    description: Description = ""
    voice: Voice = ""
    quirks: Quirks = ()
    system_prompt: SystemPrompt = ""
    model: PreferredModel = ""
    fallbacks: Fallbacks = ()
    tools: ToolNames | None = None
    skills: SkillNames | None = None
    allow_users: PeopleIds | None = None
    memory_scope: MemoryScope | None = None
    client: ClientName = ""
    daily_budget_usd: Dollars | None = None
    status: AgentStatus = AgentStatus.ACTIVE

    @field_validator("client", mode="before")
    @classmethod
    def _nobody(cls, client: object) -> object:
        return "" if client is None else client


class NewAgent(AgentFields):
    """An agent to make."""

    slug: Slug


class AgentChange(AgentFields):
    """What is to be changed of an agent: only the fields that are given, whatever the others say.

    ``version`` is the one that the editor has seen: the change is refused when somebody else was faster. ``force`` lets
    the last conductor go.
    """

    version: int | None = Field(default=None, ge=1)
    force: bool = False

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that are to be changed."""
        return frozenset(self.model_fields_set & AgentFields.model_fields.keys())


class Rollback(View):
    """Which version an agent is to be like again, and why."""

    version: int = Field(ge=1)
    reason: str = Field(default="", max_length=MAX_REASON)
    force: bool = False


class BindingFields(View):
    """All that people can edit of a bound channel."""

    permission: Permission = Permission.FULL
    key_by_user: bool = False
    busy: BusyMode | None = None
    allow_bots: bool = False
    client: ClientName = ""

    @field_validator("client", mode="before")
    @classmethod
    def _nobody(cls, client: object) -> object:
        return "" if client is None else client


class NewBinding(BindingFields):
    """A channel that is to belong to an agent."""

    platform: Word
    account: Identifier = DEFAULT_ACCOUNT
    channel: Identifier


class BoundChannel(NewBinding):
    """A channel that is to belong to the agent of this slug."""

    agent: Slug


class BindingChange(BindingFields):
    """What is to be changed of a binding: only the fields that are given; ``agent`` hands the channel to another."""

    agent: Slug = ""

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that are to be changed."""
        return frozenset(self.model_fields_set)

    @property
    def fields(self) -> dict[str, object]:
        """What is to be changed besides the agent."""
        return {name: getattr(self, name) for name in self.given & BindingFields.model_fields.keys()}


def changed(before: AgentFields, change: AgentChange) -> AgentFields:
    """Return what an agent is after a change."""
    return before.model_copy(update={name: getattr(change, name) for name in change.given})


def only_conductor(agent: Agent, after: AgentFields, others: int) -> bool:
    """Say whether a change leaves direct messages to nobody: it archives or demotes the last active conductor."""
    conducts = agent.role == CONDUCTOR and agent.status is AgentStatus.ACTIVE
    stays = after.role == CONDUCTOR and after.status is not AgentStatus.ARCHIVED
    return conducts and not stays and others == 0
