"""The settings of routing, access, pairing and conductors."""

from typing import Literal

from maestro.domain.fields import OptionalSlug, OwnerId
from maestro.domain.settings.section import ChannelReference, Section, live


class RoutingSettings(Section):
    """The choice of the agent that answers, and rate limits of users and bots."""

    conductor_channels: tuple[ChannelReference, ...] = live(
        (), "channels where the conductor answers, as `platform:channel`"
    )
    fallback_agent: OptionalSlug = live(
        "", "the slug of the agent that answers where no rule names one; empty: nobody does"
    )
    busy: Literal["queue", "collect", "interrupt"] = live(
        "queue",
        "what becomes of a message while another one of its channel is answered: it waits its turn, all that wait are "
        "answered together, or it interrupts",
    )
    messages_per_minute: int = live(
        30, "messages a minute that are answered to one person; owners have no limit", ge=1, le=100_000
    )
    bot_messages_per_minute: int = live(
        20, "messages a minute that are answered to one bot in one channel", ge=1, le=10_000
    )


class PairingSettings(Section):
    """Pairing: how an unknown user gets access to direct messages."""

    expiry_minutes: float = live(60, "minutes a pairing code is valid", gt=0, le=10_080)


class ConductorSettings(Section):
    """The rights of conductor agents, which change agents, clients and schedules."""

    allow_users: tuple[OwnerId, ...] = live(
        (),
        "who may have a conductor create and change agents, schedules and clients besides owners, as `platform:userId`",
    )
    approve_after_reading: bool = live(
        True,
        "whether a person has to approve what a conductor is about to do after text from outside was read for its "
        "answer (by `http_fetch`, `web_search`, `run_shell`, a tool over MCP or of another package)",
    )
