"""The entries of lists in the configuration: agents, channels, clients, and accounts of providers."""

from typing import Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from maestro.domain.fields import (
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
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.domain.settings.section import NO_SECRET, HttpUrl, Section, setting

DEFAULT_MODELS = {
    "anthropic": "claude-haiku-4-5",
    "openai": "gpt-4o-mini",
    "gemini": "gemini-2.5-flash",
    "openrouter": "anthropic/claude-sonnet-4",
    "ollama": "qwen2.5-coder:7b",
    "demo": "demo",
}
MOST = 1_000_000_000
"""The upper limit of rates and concurrency: above every real limit, and within the integers of a table."""
DEFAULT_CLI_MODEL = "claude-sonnet-4-6"


class AgentSettings(Section):
    """An agent in the configuration."""

    slug: Slug = Field(description="its short name, unique; people mention it as `@slug`")
    name: DisplayName = setting("", "the name people see; empty: the slug")
    role: Word = setting("assistant", "`conductor`, `assistant`, `coder`, `architect` or another")
    description: Description = setting("", "what it is for, in a sentence")
    voice: Voice = setting("", "how it speaks, such as `casual` or `professional`")
    language: DisplayName = setting("", "the language it answers in, such as `German`; empty: that of the message")
    quirks: Quirks = setting((), "habits of its speech, each a sentence")
    model: PreferredModel = setting("", "the model it prefers; empty: the account's")
    fallbacks: Fallbacks = setting((), "models to try, in order, when no account for `model` can be called")
    system_prompt: SystemPrompt = setting("", "its own instructions to the model")
    tools: ToolNames | None = setting(None, "the tools it may call; without it, those of `tools.default`")
    skills: SkillNames | None = setting(None, "the slugs of the skills it may be given; without it, every skill")
    allow_users: PeopleIds | None = setting(
        None, "users besides owners that may talk to it, as `platform:userId`; without it, every user"
    )
    memory_scope: Literal["agent", "conversation"] | None = setting(
        None, "where it remembers what it learned; without it, `memory.scope`"
    )
    client: ClientName = setting("", "the name of the client who pays for it, where the channel names none")
    daily_budget_usd: Dollars | None = setting(
        None, "US dollars it may spend a day, 0 for no limit; without it, `budgets.agentDayUsd`"
    )

    @property
    def display_name(self) -> str:
        """The name that users see: ``name``, else the slug."""
        return self.name or self.slug


class ChannelSettings(Section):
    """One channel that is bound to an agent."""

    platform: Word = Field(description="the platform, such as `discord`")
    account: Identifier = setting(DEFAULT_ACCOUNT, "Maestro's account on that platform")
    channel: Identifier = Field(description="the platform's id of the channel")
    agent: Slug = Field(description="the slug of the agent that answers there")
    permissions: Literal["full", "read_only", "notify_only"] = setting(
        "full", "only with `full` may users talk to the agent"
    )
    key_by_user: bool = setting(False, "whether each user has a conversation of their own")
    busy: Literal["queue", "collect", "interrupt"] | None = setting(
        None, "the treatment of a message while another is being answered; without it, `routing.busy`"
    )
    allow_bots: bool = setting(False, "whether messages of other bots are answered there")
    client: ClientName = setting("", "the name of the client who pays for what is answered there")


class ClientSettings(Section):
    """A client in the configuration: a customer who pays for the work of agents."""

    name: Name = Field(description="the name of the client, unique")
    slug: OptionalSlug = setting("", "a second, shorter name, unique; empty: none")
    plan: Word = setting("per_task", "how it is billed, a word for your books")
    daily_budget_usd: Dollars | None = setting(
        None, "US dollars that may be spent for it a day, 0 for no limit; without it, `budgets.clientDayUsd`"
    )
    weight: Weight = setting(1.0, "its weight in the fair queue, where other clients have 1; see `jobs.fairness`")


class AccountSettings(Section):
    """One account of a provider of models."""

    name: Name = Field(description="a name of your choice, unique")
    type: Literal["api_key", "cli"] = setting(
        "api_key", "`api_key`: over HTTP; `cli`: through the command `claude` of a subscription"
    )
    # Field validators, not a model validator in mode "before": that one passes Python objects on, and the strict
    # parser then rejects the file's list for the tuple ``models``.
    provider: Word = setting(
        "",
        "`anthropic`, `openai`, `gemini`, `openrouter`, `ollama`, another litellm provider, or `demo`, the built-in "
        "model that works offline; only a `cli` account needs none",
        validate_default=True,
    )
    model: str = setting("", "the model; empty: the provider's default, where Maestro knows one", validate_default=True)
    models: tuple[ModelName, ...] = setting((), "other models that may be called with it; empty: any of its provider")
    api_key: SecretStr = setting(NO_SECRET, 'its key, best as `"env:NAME"`')
    base_url: HttpUrl = setting("", "another server that speaks the provider's protocol")
    home_dir: str = setting("", "of a `cli` account, the folder with its login (`CLAUDE_CONFIG_DIR`); empty: the usual")
    priority: int = setting(20, "the order in which accounts are tried, lowest first", ge=0, le=1000)
    requests_per_minute: int = setting(0, "requests a minute per worker; 0: no limit in Maestro", ge=0, le=MOST)
    tokens_per_minute: int = setting(0, "tokens a minute per worker; 0: no limit in Maestro", ge=0, le=MOST)
    concurrency: int = setting(0, "concurrent calls per worker; 0: `llm.concurrency`", ge=0, le=MOST)

    @field_validator("provider", mode="before")
    @classmethod
    def _default_provider(cls, provider: object, info: ValidationInfo) -> object:
        """Set the provider of a `cli` account, which may leave it out; raise if another account does so."""
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
            raise ValueError("a cli account is the command claude: leave out provider, apiKey and baseUrl")
        if self.type == "api_key" and self.home_dir:
            raise ValueError('homeDir belongs to an account of type "cli"; leave it out')
        return self

    @model_validator(mode="after")
    def _require_model(self) -> Self:
        if not self.model:
            raise ValueError("model must be set: Maestro knows no default for this provider")
        return self
