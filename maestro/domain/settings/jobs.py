"""The settings of jobs: routing and access of messages, limits and retries, schedules and webhooks."""

from datetime import timedelta
from typing import Literal

from maestro.domain.fields import OptionalSlug, OwnerId
from maestro.domain.settings.section import ChannelReference, Seconds, Section, live, setting


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


class ScheduleSettings(Section):
    """Schedules: heartbeats and crons."""

    shortest_interval_seconds: int = live(
        30, "seconds of the shortest interval accepted; existing schedules stay as they are", ge=1, le=86_400
    )
    follow_seconds: Seconds = live(1, "seconds between two checks for schedule changes to send to Temporal")
    compare_minutes: float = live(60, "minutes between two comparisons of all schedules with Temporal's", gt=0, le=1440)
    pause_after_failures: int = live(10, "failures in a row after which a schedule is paused", ge=1, le=1000)

    @property
    def shortest(self) -> timedelta:
        """The shortest interval accepted for a new schedule."""
        return timedelta(seconds=self.shortest_interval_seconds)


class WebhookSettings(Section):
    """Requests of other programs to `/hooks/` on the port of the dashboard."""

    max_body_bytes: int = live(1024**2, "bytes of the largest request body accepted", ge=1024, le=25 * 1024**2)
    keep_days: float = live(30, "days for which a repeated delivery is recognised", ge=1, le=3650)


class JobSettings(Section):
    """Limits, retries and polling of jobs."""

    max_attempts: int = live(3, "attempts of a model call that fails at the provider", ge=1, le=100)
    max_tool_rounds: int = live(5, "rounds of tool calls after which the model has to answer", ge=0, le=50)
    backoff_base_minutes: float = live(
        2, "minutes before the second attempt; each further wait is twice as long", gt=0, le=1440
    )
    crash_limit: int = live(10, "crashes within one step after which a job is quarantined", ge=1, le=1000)
    max_pending: int = live(10_000, "pending messages above which new ones are refused", ge=1, le=10_000_000)
    background_concurrency: int = live(
        50, "jobs of heartbeats and crons, and jobs started by those, that run at once; others wait", ge=1, le=10_000
    )
    fairness: bool = live(
        True,
        "whether a fair queue gives each client, or else each channel, its share; if not, jobs start in order of "
        "arrival",
    )
    stop_poll_seconds: Seconds = live(0.5, "seconds between two checks whether a job was stopped")
    reconcile_seconds: Seconds = live(60, "seconds between two comparisons of open jobs with Temporal")
    dispatch_seconds: Seconds = live(0.2, "seconds between two checks for messages that another process received")
    drain_seconds: float = setting(
        20, "seconds that running work gets to finish when Maestro shuts down", ge=0, le=3600
    )
