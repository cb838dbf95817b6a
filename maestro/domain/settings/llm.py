"""The settings of model calls: accounts, limits in time and money, and known models."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from maestro.domain.settings.entries import AccountSettings, unique_accounts
from maestro.domain.settings.section import LIVE, Seconds, Section
from maestro.domain.words import Dollars, ModelName

LADDER = (1.0, 5.0, 25.0, 60.0)

Minutes = Annotated[float, Field(gt=0, le=1440)]


class ModelSettings(Section):
    """What is known of one model; what is left out is taken from Maestro's own table, then from litellm's."""

    name: ModelName = Field(description="the model's name without its provider, or the beginning of it")
    window: int | None = Field(default=None, ge=1024, description="tokens of its context window")
    input_usd: Dollars | None = Field(default=None, description="US dollars per million tokens it reads")
    output_usd: Dollars | None = Field(default=None, description="US dollars per million tokens it writes")

    @model_validator(mode="after")
    def _whole_price(self) -> Self:
        if (self.input_usd is None) != (self.output_usd is None):
            raise ValueError("inputUsd and outputUsd belong together; set both or none")
        return self


class BreakerSettings(Section):
    """The circuit breaker: when a provider that fails is not asked for a while."""

    failures: int = Field(
        default=5, ge=1, le=1000, description="failures in a row after which it is not asked", json_schema_extra=LIVE
    )
    open_seconds: Seconds = Field(
        default=30, description="seconds it is left alone before it is tried again", json_schema_extra=LIVE
    )
    successes: int = Field(
        default=3, ge=1, le=1000, description="successes after which all is well again", json_schema_extra=LIVE
    )


class TranscriptionSettings(Section):
    """How voice messages become text."""

    enabled: bool = Field(default=True, description="whether voice messages are transcribed", json_schema_extra=LIVE)
    provider: str = Field(
        default="openai", description="the provider whose accounts transcribe", json_schema_extra=LIVE
    )
    model: ModelName = Field(default="whisper-1", description="its model for that", json_schema_extra=LIVE)
    max_seconds: Seconds = Field(default=60, description="seconds one transcription may take", json_schema_extra=LIVE)


class LlmSettings(Section):
    """The models and what a call may cost in time and tokens."""

    accounts: Annotated[tuple[AccountSettings, ...], AfterValidator(unique_accounts)] = Field(
        default=(), description="the accounts to call; empty: those whose keys are found in the environment"
    )
    models: tuple[ModelSettings, ...] = Field(
        default=(), description="windows and prices that differ from what Maestro knows"
    )
    total_timeout_seconds: Seconds = Field(
        default=180, description="seconds one request to an account may take in all", json_schema_extra=LIVE
    )
    max_output_tokens: int = Field(
        default=4096, ge=1, le=1_000_000, description="tokens of the longest answer", json_schema_extra=LIVE
    )
    max_answer_bytes: int = Field(
        default=16 * 1024**2,
        ge=64 * 1024,
        le=1024**3,
        description="bytes of the largest answer read from a provider, unpacked; a call whose answer is larger fails. "
        "A stream may take four times as many, because each piece of it comes in a frame of its own",
        json_schema_extra=LIVE,
    )
    cooldown_minutes: Annotated[tuple[Minutes, ...], Field(min_length=1, max_length=20)] = Field(
        default=LADDER,
        description="minutes an account's model is left alone after its first, second, ... limit in a row",
        json_schema_extra=LIVE,
    )
    concurrency: int = Field(
        default=100, ge=1, le=10_000, description="calls at once to one account and worker", json_schema_extra=LIVE
    )
    reserved_for_people: int = Field(
        default=10,
        ge=0,
        le=10_000,
        description="of these, calls that background work leaves free; at most all but one",
        json_schema_extra=LIVE,
    )
    limiter_wait_seconds: Seconds = Field(
        default=30,
        description="seconds a call waits for room under our own limits before another account is asked",
        json_schema_extra=LIVE,
    )
    cache: bool = Field(
        default=True, description="whether Anthropic is asked to keep the beginning of prompts", json_schema_extra=LIVE
    )
    demo_seconds: float = Field(
        default=4,
        ge=0,
        le=60,
        allow_inf_nan=False,
        description="seconds the built-in demo model takes for an answer",
        json_schema_extra=LIVE,
    )
    breaker: BreakerSettings = BreakerSettings()
    transcription: TranscriptionSettings = TranscriptionSettings()


class BudgetSettings(Section):
    """What may be spent in a day (UTC), in US dollars; 0 for no limit. Unknown prices are not counted."""

    day_usd: Dollars = Field(
        default=50, description="by everybody together; beyond it nothing is answered", json_schema_extra=LIVE
    )
    agent_day_usd: Dollars = Field(default=0, description="by one agent", json_schema_extra=LIVE)
    client_day_usd: Dollars = Field(default=0, description="for one client", json_schema_extra=LIVE)
    conversation_day_usd: Dollars = Field(default=0, description="in one conversation", json_schema_extra=LIVE)
    on_limit: Literal["refuse", "fallback"] = Field(
        default="refuse",
        description="what happens when an agent, client or conversation has spent its budget: `refuse` says so, "
        "`fallback` asks `fallbackModel`",
        json_schema_extra=LIVE,
    )
    fallback_model: str = Field(
        default="", description="the cheaper model, as `provider/model`", json_schema_extra=LIVE
    )

    @model_validator(mode="after")
    def _fallback_named(self) -> Self:
        if self.on_limit == "fallback" and not self.fallback_model:
            raise ValueError('budgets.fallbackModel must be set when budgets.onLimit is "fallback"')
        return self
