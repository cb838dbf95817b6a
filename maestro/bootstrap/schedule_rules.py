"""Composes the operations on schedules, by the rules that hold now."""

from maestro.bootstrap.flow import queues
from maestro.bootstrap.live import LiveSettings
from maestro.operations.schedules import PlanningRules, ScheduleOperations
from maestro.settings import Settings
from maestro.store.store import Store


def open_schedules(store: Store, live: LiveSettings) -> ScheduleOperations:
    """Return the operations on schedules."""
    return ScheduleOperations(store, live.of(_rules))


def _rules(settings: Settings) -> PlanningRules:
    return PlanningRules(settings.schedules.shortest, queues(settings).main)
