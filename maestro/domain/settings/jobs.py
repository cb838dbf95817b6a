"""The settings of how jobs are started, retried and given up."""

from pydantic import Field

from maestro.domain.settings.section import LIVE, Seconds, Section


class JobSettings(Section):
    """How jobs are started, retried and given up."""

    max_attempts: int = Field(
        default=3, ge=1, le=100, description="attempts of a model call that the provider failed", json_schema_extra=LIVE
    )
    max_tool_rounds: int = Field(
        default=5,
        ge=0,
        le=50,
        description="rounds of tool calls after which the model has to answer",
        json_schema_extra=LIVE,
    )
    backoff_base_minutes: float = Field(
        default=2,
        gt=0,
        le=1440,
        description="minutes before the second attempt; each further wait is twice as long",
        json_schema_extra=LIVE,
    )
    crash_limit: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="crashes within one step after which a job is quarantined",
        json_schema_extra=LIVE,
    )
    max_pending: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="waiting messages beyond which new ones are refused",
        json_schema_extra=LIVE,
    )
    background_concurrency: int = Field(
        default=50,
        ge=1,
        le=10_000,
        description="jobs of heartbeats and crons, and of what they lead to, that run at once; the others wait",
        json_schema_extra=LIVE,
    )
    fairness: bool = Field(
        default=True,
        description="whether each client, or else each channel, gets its share when many wait; if not, first come is "
        "first served",
        json_schema_extra=LIVE,
    )
    stop_poll_seconds: Seconds = Field(
        default=0.5, description="seconds between two looks whether a job was stopped", json_schema_extra=LIVE
    )
    reconcile_seconds: Seconds = Field(
        default=60, description="seconds between two comparisons of open jobs with Temporal", json_schema_extra=LIVE
    )
    dispatch_seconds: Seconds = Field(
        default=0.2,
        description="seconds between two looks for messages another process took in",
        json_schema_extra=LIVE,
    )
    drain_seconds: float = Field(
        default=20, ge=0, le=3600, description="seconds running work may take to finish when Maestro is told to end"
    )
