"""The entries of lists in the configuration: agents, channels, clients, and accounts of providers."""

from typing import Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.settings.section import NO_SECRET, HttpUrl, Section, setting
from maestro.domain.values import (
    ClientName,
    Description,
    DisplayName,
    Dollars,
    Fallbacks,
    Identifier,
    ModelName,
    Name,
    OptionalSlug,
    PeopleIds,
    PreferredModel,
    Quirks,
    SkillNames,
    Slug,
    SystemPrompt,
    ToolNames,
    Voice,
    Weight,
    Word,
)

DEFAULT_MODELS = {
    "anthropic": "claude-haiku-4-5",
    "openai": "gpt-4o-mini",
    "gemini": "gemini-2.5-flash",
    "openrouter": "anthropic/claude-sonnet-4",
    "ollama": "qwen2.5-coder:7b",
    "demo": "demo",
}
MOST = 1_000_000_000
"""The upper limit of rates and concurrency: above every real limit, and storable as an integer."""
DEFAULT_CLI_MODEL = "claude-sonnet-4-6"


class AgentSettings(Section):
    """An agent in the configuration."""

    slug: Slug = Field(description="the agent's unique short name; users mention the agent as `@slug`")
    name: DisplayName = setting("", "the name people see; empty: the slug")
    role: Word = setting("assistant", "`conductor`, `assistant`, `coder`, `architect` or another")
    description: Description = setting("", "the agent's purpose, in a sentence")
    voice: Voice = setting("", "how the agent speaks, such as `casual` or `professional`")
    language: DisplayName = setting("", "the language of answers, such as `German`; empty: that of the message")
    quirks: Quirks = setting((), "habits of the agent's speech, each a sentence")
    model: PreferredModel = setting("", "the preferred model; empty: the account's")
    fallbacks: Fallbacks = setting((), "models to try, in order, when no account for `model` can be called")
    system_prompt: SystemPrompt = setting("", "the agent's own instructions to the model")
    tools: ToolNames | None = setting(None, "tools that the agent may call; not set: those of `tools.default`")
    skills: SkillNames | None = setting(None, "slugs of the skills that the agent may get; not set: every skill")
    allow_users: PeopleIds | None = setting(
        None, "users besides owners that may talk to the agent, as `platform:userId`; not set: every user"
    )
    memory_scope: Literal["agent", "conversation"] | None = setting(
        None, "where the agent recalls its facts; not set: `memory.scope`"
    )
    client: ClientName = setting("", "the name of the client that pays for the agent, if the channel names none")
    daily_budget_usd: Dollars | None = setting(
        None, "US dollars that the agent may spend a day, 0 for no limit; not set: `budgets.agentDayUsd`"
    )


class ChannelSettings(Section):
    """One channel that is bound to an agent."""

    platform: Word = Field(description="the platform, such as `discord`")
    account: Identifier = setting(DEFAULT_ACCOUNT, "Maestro's account on that platform")
    channel: Identifier = Field(description="the platform's id of the channel")
    agent: Slug = Field(description="the slug of the agent that answers in the channel")
    permissions: Literal["full", "read_only", "notify_only"] = setting(
        "full", "whether users may talk to the agent: only with `full`"
    )
    key_by_user: bool = setting(False, "whether each user has a separate conversation")
    busy: Literal["queue", "collect", "interrupt"] | None = setting(
        None, "what happens to a message while another is being answered; not set: `routing.busy`"
    )
    allow_bots: bool = setting(False, "whether messages of other bots are answered in the channel")
    client: ClientName = setting("", "the name of the client that pays for answers in the channel")


class ClientSettings(Section):
    """A client in the configuration: a customer that pays for the work of agents."""

    name: Name = Field(description="the name of the client, unique")
    slug: OptionalSlug = setting("", "a second, shorter name, unique; empty: none")
    plan: Word = setting("per_task", "how the client is billed, a word for your accounting")
    daily_budget_usd: Dollars | None = setting(
        None, "US dollars that may be spent for the client a day, 0 for no limit; not set: `budgets.clientDayUsd`"
    )
    weight: Weight = setting(1.0, "the client's weight in the fair queue, see `jobs.fairness`")


class AccountSettings(Section):
    """One account of a provider of models."""

    name: Name = Field(description="a name of your choice, unique")
    type: Literal["api_key", "cli"] = setting(
        "api_key", "`api_key`: over HTTP; `cli`: through the command `claude` of a subscription"
    )
    # The validators below are field validators. After a model validator in mode "before", the strict mode of pydantic
    # would reject a list in the file for the tuple ``models``.
    provider: Word = setting(
        "",
        "`anthropic`, `openai`, `gemini`, `openrouter`, `ollama`, another litellm provider, or `demo`, the built-in "
        "model that works offline; only a `cli` account needs none",
        validate_default=True,
    )
    model: str = setting("", "the model; empty: the provider's default, where Maestro knows one", validate_default=True)
    models: tuple[ModelName, ...] = setting((), "other models that may be called; empty: any model of the provider")
    api_key: SecretStr = setting(NO_SECRET, 'the API key, best as `"env:NAME"`')
    base_url: HttpUrl = setting("", "another server that speaks the provider's protocol")
    home_dir: str = setting("", "the login folder of a `cli` account (`CLAUDE_CONFIG_DIR`); empty: the default")
    priority: int = setting(20, "the order in which accounts are tried, lowest first", ge=0, le=1000)
    requests_per_minute: int = setting(0, "most requests a minute per worker; 0: no limit in Maestro", ge=0, le=MOST)
    tokens_per_minute: int = setting(0, "most tokens a minute per worker; 0: no limit in Maestro", ge=0, le=MOST)
    concurrency: int = setting(0, "most concurrent calls per worker; 0: `llm.concurrency`", ge=0, le=MOST)

    @field_validator("provider", mode="before")
    @classmethod
    def _default_provider(cls, provider: object, info: ValidationInfo) -> object:
        """Set the provider of a `cli` account that names none; raise if another account names no provider."""
        if provider != "":
            return provider
        if info.data.get("type") != "cli":
            raise PydanticKnownError("missing")
        return "anthropic"

    @field_validator("model")
    @classmethod
    def _default_model(cls, model: str, info: ValidationInfo) -> str:
        """Set the provider's default model, so that ``model`` is never empty if Maestro knows a default."""
        if model or "provider" not in info.data:
            return model
        by_provider = DEFAULT_MODELS.get(info.data["provider"], "")
        return DEFAULT_CLI_MODEL if info.data.get("type") == "cli" else by_provider

    @model_validator(mode="after")
    def _check_type(self) -> Self:
        """Reject keys that this type of account would ignore."""
        if self.type == "cli" and (self.provider != "anthropic" or self.api_key or self.base_url):
            raise ValueError("a cli account calls the command claude: leave out provider, apiKey and baseUrl")
        if self.type == "api_key" and self.home_dir:
            raise ValueError('homeDir belongs to an account of type "cli"; leave it out')
        return self

    @model_validator(mode="after")
    def _require_model(self) -> Self:
        if not self.model:
            raise ValueError("model must be set: Maestro knows no default for this provider")
        return self
