"""The settings of who answers whom: routing, permission, pairing and what conductors may be asked for."""

from typing import Literal

from pydantic import Field

from maestro.domain.words import OptionalSlug, OwnerId
from maestro.settings.checks import Place
from maestro.settings.section import Section


class RoutingSettings(Section):
    """Who answers."""

    conductor_channels: tuple[Place, ...] = Field(
        default=(), description="channels where the conductor answers, as `platform:channel`"
    )
    fallback_agent: OptionalSlug = Field(
        default="", description="the slug of the agent that answers where no rule names one; empty: nobody does"
    )
    busy: Literal["queue", "collect", "interrupt"] = Field(
        default="queue",
        description="what becomes of a message while another one of its channel is answered: it waits its turn, all "
        "that wait are answered together, or it interrupts",
    )
    messages_per_minute: int = Field(
        default=30,
        ge=1,
        le=100_000,
        description="messages a minute that are answered to one person; owners have no limit",
    )
    bot_messages_per_minute: int = Field(
        default=20, ge=1, le=10_000, description="messages a minute that are answered to one bot in one channel"
    )


class PairingSettings(Section):
    """How people become known to whom direct messages of strangers are not answered."""

    expiry_minutes: float = Field(default=60, gt=0, le=10_080, description="minutes a pairing code is valid")


class ConductorSettings(Section):
    """What conductors may be asked for."""

    allow_users: tuple[OwnerId, ...] = Field(
        default=(),
        description="who may have a conductor create and change agents, schedules and clients besides owners, as "
        "`platform:userId`",
    )
