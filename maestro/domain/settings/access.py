"""The settings of routing, access, pairing and conductors."""

from typing import Literal

from pydantic import Field

from maestro.domain.settings.section import LIVE, ChannelReference, Section
from maestro.domain.words import OptionalSlug, OwnerId


class RoutingSettings(Section):
    """Which agent answers, and how often."""

    conductor_channels: tuple[ChannelReference, ...] = Field(
        default=(), description="channels where the conductor answers, as `platform:channel`", json_schema_extra=LIVE
    )
    fallback_agent: OptionalSlug = Field(
        default="",
        description="the slug of the agent that answers where no rule names one; empty: nobody does",
        json_schema_extra=LIVE,
    )
    busy: Literal["queue", "collect", "interrupt"] = Field(
        default="queue",
        description="what becomes of a message while another one of its channel is answered: it waits its turn, all "
        "that wait are answered together, or it interrupts",
        json_schema_extra=LIVE,
    )
    messages_per_minute: int = Field(
        default=30,
        ge=1,
        le=100_000,
        description="messages a minute that are answered to one person; owners have no limit",
        json_schema_extra=LIVE,
    )
    bot_messages_per_minute: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="messages a minute that are answered to one bot in one channel",
        json_schema_extra=LIVE,
    )


class PairingSettings(Section):
    """Pairing: how an unknown user gets access to direct messages."""

    expiry_minutes: float = Field(
        default=60, gt=0, le=10_080, description="minutes a pairing code is valid", json_schema_extra=LIVE
    )


class ConductorSettings(Section):
    """What conductors may be asked for."""

    allow_users: tuple[OwnerId, ...] = Field(
        default=(),
        description="who may have a conductor create and change agents, schedules and clients besides owners, as "
        "`platform:userId`",
        json_schema_extra=LIVE,
    )
    approve_after_reading: bool = Field(
        default=True,
        description="whether a person has to approve what a conductor is about to do after text from outside was read "
        "for its answer (by `http_fetch`, `web_search`, `run_shell`, a tool over MCP or of another package)",
        json_schema_extra=LIVE,
    )
