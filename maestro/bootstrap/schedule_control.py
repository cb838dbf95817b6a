"""Makes, changes and begins schedules for operators, by the rules that hold now (decision 14)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from maestro.bootstrap.flow import queues
from maestro.bootstrap.live import LiveSettings
from maestro.domain.schedules.edits import BackfillWish, NewSchedule, PreviewWish, ScheduleChange, ScheduleKind
from maestro.domain.schedules.views import BackfillView, PreviewView, ScheduleView, StartedRun, preview_view
from maestro.settings import Settings
from maestro.store.store import Store


@dataclass(frozen=True)
class PlanningRules:
    """The shortest interval that may be written, and the queue that the ids of runs begin with."""

    shortest: timedelta
    main_queue: str


class StoreScheduleControl:
    """Changes schedules in the store, where Temporal follows them; a ``ScheduleControl``."""

    def __init__(self, store: Store, rules: Callable[[], PlanningRules]) -> None:
        self._store = store
        self._rules = rules

    def add(self, kind: ScheduleKind, new: NewSchedule, actor: str) -> ScheduleView:
        """Plan something; raises as ``ScheduleEdits.add`` does."""
        with self._store.begin() as tx:
            return tx.schedules.view(tx.schedules.add(kind.table, new, actor, self._rules().shortest))

    def change(self, ref: str, change: ScheduleChange, actor: str) -> ScheduleView:
        """Change what is planned; raises as ``add`` does."""
        with self._store.begin() as tx:
            planned = tx.schedules.change(tx.schedules.get(ref), change, actor, self._rules().shortest)
            return tx.schedules.view(planned)

    def preview(self, wish: PreviewWish) -> PreviewView:
        """Return when a schedule would come; raises ``InvalidEdit`` for what is none."""
        with self._store.view() as tx:
            now = tx.now
        return preview_view(wish, now, self._rules().shortest)

    def run_now(self, ref: str, actor: str) -> StartedRun:
        """Begin a run beside the schedule; raises ``Conflict`` while another is open, and when the agent is paused."""
        with self._store.begin() as tx:
            return StartedRun(job_id=tx.schedule_starts.run_now(tx.schedules.get(ref), actor))

    def backfill(self, ref: str, wish: BackfillWish, actor: str) -> BackfillView:
        """Make up for times that passed, at most 100; raises ``InvalidEdit`` for more, and as ``run_now`` does."""
        with self._store.begin() as tx:
            planned = tx.schedules.get(ref)
            prefix = f"{self._rules().main_queue}-{planned.ref}"
            return tx.schedule_starts.backfill(planned, wish, prefix, actor)


def open_schedules(store: Store, live: LiveSettings) -> StoreScheduleControl:
    """Return what operators do with schedules."""
    return StoreScheduleControl(store, live.of(_rules))


def _rules(settings: Settings) -> PlanningRules:
    return PlanningRules(settings.schedules.shortest, queues(settings).main)
