"""The settings of model calls: accounts, timeouts, limits, budgets and known models."""

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from maestro.domain.settings.entries import AccountSettings
from maestro.domain.settings.section import Seconds, Section, live, setting, unique
from maestro.domain.values import Dollars, ModelName

LADDER = (1.0, 5.0, 25.0, 60.0)

Minutes = Annotated[float, Field(gt=0, le=1440)]


class ModelSettings(Section):
    """One model's context window and prices; a missing value comes from Maestro's table, else from litellm's."""

    name: ModelName = Field(description="the model's name without its provider, or the beginning of that name")
    window: int | None = setting(None, "tokens of the model's context window", ge=1024)
    input_usd: Dollars | None = setting(None, "US dollars per million input tokens")
    output_usd: Dollars | None = setting(None, "US dollars per million output tokens")

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if (self.input_usd is None) != (self.output_usd is None):
            raise ValueError("inputUsd and outputUsd belong together; set both or none")
        return self


class BreakerSettings(Section):
    """The circuit breaker, which pauses calls to a provider that keeps failing."""

    failures: int = live(5, "failed calls in a row after which the breaker opens (pauses calls)", ge=1, le=1000)
    open_seconds: Seconds = live(30, "seconds without calls before a first call probes the provider")
    successes: int = live(3, "successful calls after which the breaker closes again", ge=1, le=1000)


class TranscriptionSettings(Section):
    """Transcription of voice messages."""

    enabled: bool = live(True, "whether voice messages are transcribed")
    provider: str = live("openai", "the provider that transcribes")
    model: ModelName = live("whisper-1", "the model for transcription")
    max_seconds: Seconds = live(60, "seconds one transcription may take")


class LlmSettings(Section):
    """Accounts, models, timeouts and limits of model calls."""

    accounts: Annotated[
        tuple[AccountSettings, ...], unique(lambda account: account.name, "two accounts have the name {}; rename one")
    ] = setting((), "the accounts to call; empty: accounts with a key in the environment")
    models: tuple[ModelSettings, ...] = setting((), "context windows and prices that replace those in Maestro's table")
    total_timeout_seconds: Seconds = live(180, "seconds one request to an account may take in all")
    max_output_tokens: int = live(4096, "tokens of the longest answer", ge=1, le=1_000_000)
    max_answer_bytes: int = live(
        16 * 1024**2,
        "the largest answer of a provider in bytes after decompression; a call with a larger answer fails. A stream may"
        " have four times as many bytes, because each part of the answer arrives in a separate frame",
        ge=64 * 1024,
        le=1024**3,
    )
    cooldown_minutes: Annotated[tuple[Minutes, ...], Field(min_length=1, max_length=20)] = live(
        LADDER, "minutes of cool-down for an account's model after its first, second, ... rate limit in a row"
    )
    concurrency: int = live(100, "calls at once from one worker to one account; more calls wait", ge=1, le=10_000)
    reserved_for_people: int = live(
        10, "calls of `concurrency` that are reserved for answers to users; at most all but one", ge=0, le=10_000
    )
    limiter_wait_seconds: Seconds = live(
        30, "seconds a call waits for the configured limits of an account; then another account is tried"
    )
    cache: bool = live(True, "whether prompt caching is requested from Anthropic")
    demo_seconds: float = live(
        4, "seconds the built-in demo model takes for an answer", ge=0, le=60, allow_inf_nan=False
    )
    breaker: BreakerSettings = BreakerSettings()
    transcription: TranscriptionSettings = TranscriptionSettings()


class BudgetSettings(Section):
    """The most that may be spent in a day (UTC), in US dollars; 0 for no limit. Unknown prices are not counted."""

    day_usd: Dollars = live(50, "the budget of all answers together; once it is spent, no message is answered")
    agent_day_usd: Dollars = live(0, "the budget of one agent")
    client_day_usd: Dollars = live(0, "the budget of one client")
    conversation_day_usd: Dollars = live(0, "the budget of one conversation")
    on_limit: Literal["refuse", "fallback"] = live(
        "refuse",
        "what happens when an agent, client or conversation has spent its budget: `refuse` answers with a notice, "
        "`fallback` calls `fallbackModel`",
    )
    fallback_model: str = live("", "the model that `onLimit` `fallback` calls, as `provider/model`")

    @cached_property
    def cheaper_model(self) -> str:
        """The model that answers when the budget of an agent, client or conversation is spent; empty for none."""
        return self.fallback_model if self.on_limit == "fallback" else ""

    @model_validator(mode="after")
    def _require_fallback(self) -> Self:
        if self.on_limit == "fallback" and not self.fallback_model:
            raise ValueError('budgets.fallbackModel must be set when budgets.onLimit is "fallback"')
        return self
