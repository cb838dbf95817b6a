"""The operations on schedules."""

from collections.abc import Callable

from pydantic import Field

from maestro.domain.schedules.edits import BackfillRequest, NewScheduleOfKind, ScheduleChange, SchedulePreviewRequest
from maestro.domain.schedules.views import (
    BackfillView,
    ScheduleFilter,
    SchedulePage,
    SchedulePreview,
    ScheduleView,
    StartedRun,
    preview_view,
)
from maestro.domain.settings.jobs import ScheduleSettings
from maestro.operations.inputs import LIMIT
from maestro.store.store import Store


class ScheduleQuery(ScheduleFilter):
    """A filter and a page of its result; ``cursor`` is the ``next`` of the page before."""

    limit: int = Field(default=LIMIT, ge=1, le=1000)
    cursor: str | None = None


class ScheduleOperations:
    """The operations on the rows of schedules, which Temporal follows; each raises ``NotFound`` for an unknown ref."""

    def __init__(self, store: Store, settings: Callable[[], ScheduleSettings], main_queue: str) -> None:
        """``main_queue`` is the prefix of the ids of runs."""
        self._store = store
        self._settings = settings
        self._main_queue = main_queue

    def list(self, query: ScheduleQuery) -> SchedulePage:
        """List heartbeats and crons with their next and last runs, heartbeats first, the oldest first."""
        with self._store.view() as tx:
            found = tx.background.schedules.page(query, query.cursor, query.limit + 1)
        more = len(found) > query.limit
        return SchedulePage(items=tuple(found[: query.limit]), next=found[query.limit - 1].ref if more else None)

    def show(self, ref: str) -> ScheduleView:
        """Return a schedule by its ref, such as cron-3."""
        with self._store.view() as tx:
            return tx.background.schedules.view(tx.background.schedules.get(ref))

    def add(self, new: NewScheduleOfKind, actor: str) -> ScheduleView:
        """Add a schedule, which runs from its next time on; 409 when the agent has a schedule of this name."""
        with self._store.begin() as tx:
            return tx.background.schedules.view(
                tx.background.schedules.add(new.kind.table, new, actor, self._settings().shortest)
            )

    def change(self, ref: str, change: ScheduleChange, actor: str) -> ScheduleView:
        """Change the given fields; ``enabled`` pauses a schedule, or resumes it whatever paused it."""
        with self._store.begin() as tx:
            planned = tx.background.schedules.change(
                tx.background.schedules.get(ref), change, actor, self._settings().shortest
            )
            return tx.background.schedules.view(planned)

    def remove(self, ref: str, actor: str) -> None:
        """Remove a schedule; its jobs stay."""
        with self._store.begin() as tx:
            tx.background.schedules.remove(tx.background.schedules.get(ref), actor)

    def preview(self, request: SchedulePreviewRequest) -> SchedulePreview:
        """Return the next five times of a schedule in its time zone, without storing the schedule."""
        with self._store.view() as tx:
            return preview_view(request, tx.now, self._settings().shortest)

    def run_now(self, ref: str, actor: str) -> StartedRun:
        """Start a run now, even if the schedule is paused; 409 while another run is open or the agent is not active."""
        with self._store.begin() as tx:
            return StartedRun(job_id=tx.background.runs.run_now(tx.background.schedules.get(ref), actor))

    def backfill(self, ref: str, request: BackfillRequest, actor: str) -> BackfillView:
        """Start a run for each missed time; raises ``InvalidEdit`` for more than 100 times, and as ``run_now`` does."""
        with self._store.begin() as tx:
            planned = tx.background.schedules.get(ref)
            return tx.background.runs.backfill(planned, request, f"{self._main_queue}-{planned.ref}", actor)
