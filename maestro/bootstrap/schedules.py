"""What keeps Temporal's schedules as the rows of heartbeats and crons are."""

from maestro.bootstrap.flow import pace, queues
from maestro.bootstrap.live import LiveSettings
from maestro.settings import Settings
from maestro.store.store import Store
from temporal.schedule_keeper import KeeperIntervals, ScheduleKeeper
from temporal.schedules import ScheduleTerms


def build_keeper(store: Store, live: LiveSettings) -> ScheduleKeeper:
    """Return the keeper of a process that works with Temporal."""
    return ScheduleKeeper(store, live.of(_terms), live.of(_rhythm))


def _terms(settings: Settings) -> ScheduleTerms:
    return ScheduleTerms(queues(settings), pace(settings))


def _rhythm(settings: Settings) -> KeeperIntervals:
    schedules = settings.schedules
    return KeeperIntervals(look=schedules.follow_seconds, compare=schedules.compare_minutes * 60)
