"""The settings of jobs that no chat message starts: schedules and webhooks."""

from datetime import timedelta

from maestro.domain.settings.section import Seconds, Section, live


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
