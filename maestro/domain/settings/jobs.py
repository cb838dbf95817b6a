"""The settings of job limits, retries and polling."""

from maestro.domain.settings.section import Seconds, Section, live, setting


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
