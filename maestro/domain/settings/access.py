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
        "", "the slug of the agent that answers if no routing rule names one; empty: none"
    )
    busy: Literal["queue", "collect", "interrupt"] = live(
        "queue",
        "a message that arrives while another one of its channel is being answered waits (`queue`), is answered "
        "together with all others that wait (`collect`), or interrupts the answer (`interrupt`)",
    )
    messages_per_minute: int = live(
        30, "messages of one user that are answered a minute; owners have no limit", ge=1, le=100_000
    )
    bot_messages_per_minute: int = live(
        20, "messages of one bot in one channel that are answered a minute", ge=1, le=10_000
    )


class PairingSettings(Section):
    """Pairing: how an unknown user gets access to direct messages."""

    expiry_minutes: float = live(60, "minutes a pairing code is valid", gt=0, le=10_080)


class ConductorSettings(Section):
    """The rights of conductor agents, which change agents, clients and schedules."""

    allow_users: tuple[OwnerId, ...] = live(
        (),
        "users besides owners that may have a conductor change agents, schedules and clients, as `platform:userId`",
    )
    approve_after_reading: bool = live(
        True,
        "whether a user must approve the changes of a conductor after text from outside was read for the "
        "answer (by `http_fetch`, `web_search`, `run_shell`, a tool over MCP or of another package)",
    )
