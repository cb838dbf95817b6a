"""The settings of inbound webhooks."""

from datetime import timedelta

from pydantic import Field

from maestro.settings.section import LIVE, Section


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
