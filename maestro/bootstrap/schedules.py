"""What keeps Temporal's schedules as the rows of heartbeats and crons are."""

from maestro.bootstrap.flow import pace, queues
from maestro.bootstrap.live import LiveSettings
from maestro.settings import Settings
from maestro.store.store import Store
from temporal.keeper import Keeper, Rhythm
from temporal.schedules import Terms


def build_keeper(store: Store, live: LiveSettings) -> Keeper:
    """Return the keeper of a process that works with Temporal."""
    return Keeper(store, live.of(_terms), live.of(_rhythm))


def _terms(settings: Settings) -> Terms:
    return Terms(queues(settings), pace(settings))


def _rhythm(settings: Settings) -> Rhythm:
    schedules = settings.schedules
    return Rhythm(look=schedules.follow_seconds, compare=schedules.compare_minutes * 60)
