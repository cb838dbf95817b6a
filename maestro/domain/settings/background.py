"""The settings of work that no message began: schedules and webhooks."""

from datetime import timedelta

from pydantic import Field

from maestro.domain.settings.section import LIVE, Seconds, Section


class ScheduleSettings(Section):
    """Heartbeats and crons."""

    shortest_interval_seconds: int = Field(
        default=30,
        ge=1,
        le=86_400,
        description="seconds of the shortest interval that may be written; what runs already stays as it is",
        json_schema_extra=LIVE,
    )
    follow_seconds: Seconds = Field(
        default=1,
        description="seconds between two looks for changes that Temporal has to hear of",
        json_schema_extra=LIVE,
    )
    compare_minutes: float = Field(
        default=60,
        gt=0,
        le=1440,
        description="minutes between two comparisons of all schedules with Temporal's",
        json_schema_extra=LIVE,
    )
    pause_after_failures: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="failures in a row after which a schedule is paused",
        json_schema_extra=LIVE,
    )

    @property
    def shortest(self) -> timedelta:
        """The shortest interval that may be written."""
        return timedelta(seconds=self.shortest_interval_seconds)


class WebhookSettings(Section):
    """What programs outside send to `/hooks/` at the port of the dashboard."""

    max_body_bytes: int = Field(
        default=1024**2,
        ge=1024,
        le=25 * 1024**2,
        description="bytes of the largest body taken",
        json_schema_extra=LIVE,
    )
    keep_days: float = Field(
        default=30,
        ge=1,
        le=3650,
        description="days for which a delivery is known again when it comes once more",
        json_schema_extra=LIVE,
    )

    @property
    def kept(self) -> timedelta:
        """How long a delivery is known again."""
        return timedelta(days=self.keep_days)
