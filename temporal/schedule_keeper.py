"""Keeps the schedules in Temporal equal to the rows of heartbeats and crons (ADR 17).

The store is the truth.
"""

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.errors import InvalidEdit
from maestro.domain.schedules.schedule import ScheduleColumns, runs_once
from maestro.domain.settings.jobs import ScheduleSettings
from maestro.store.background.schedules import FollowedSchedule
from maestro.store.cache import StoreState
from maestro.store.store import Store
from maestro.supervision import gather_limited
from temporal.dispatcher import RunSettings
from temporal.schedules import DesiredSchedule, desired_schedule, put_schedule, remove_schedule, schedule_id

AT_ONCE = 20
LONGEST_PAUSE = 5.0

REFUSALS = frozenset({RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.OUT_OF_RANGE, RPCStatusCode.UNIMPLEMENTED})
"""Refusals that a retry would get again; the next attempt follows a change of the row, or a full comparison."""

TEMPORARY_REFUSALS = frozenset(
    {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.FAILED_PRECONDITION}
)
"""Refusals that end without a change of the row; retried soon, and stored in the row.

An administrator has to grant a right, or (``FAILED_PRECONDITION``) the workers inside a server that has just started do
not poll yet.
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ScheduleSnapshot:
    """The schedule rows as read together: all ids, the Temporal schedule for each valid row, and the invalid rows.

    ``stamp`` changes when any of these may have changed.
    """

    stamp: tuple[object, ...]
    ids: frozenset[str]
    desired: Sequence[tuple[ScheduleColumns, DesiredSchedule]]
    unreadable: Sequence[FollowedSchedule]


class ScheduleKeeper:
    """Creates, changes, pauses and deletes schedules in Temporal to match their rows.

    Keepers of two processes may run at once: updates are idempotent, and each corrects the outdated updates of the
    other.
    """

    def __init__(self, store: Store, runs: Callable[[], RunSettings], settings: Callable[[], ScheduleSettings]) -> None:
        self._store = store
        self._runs = runs
        self._settings = settings
        self._seen: tuple[object, ...] | None = None
        self._known: set[str] = set()
        self._to_retry: set[str] = set()
        self._compare_at = -math.inf

    async def run(self, client: Client) -> None:
        """Send changed rows to Temporal until cancelled; changes made while Temporal is away are sent afterwards."""
        pause = 0.0
        with self._store.changes.subscribe(self._is_changed, lambda: self._settings().follow_seconds) as changed:
            while True:
                try:
                    finished = await self.update_schedules(client)
                except RPCError as error:
                    log.info("schedules.postponed", status=error.status.name)
                    finished = False
                if finished:
                    pause = 0.0
                    await changed.wait()
                    changed.clear()
                else:
                    pause = max(self._settings().follow_seconds, min(pause * 2, LONGEST_PAUSE))
                    await asyncio.sleep(pause)

    def _is_changed(self, state: StoreState) -> bool:
        return (state.schedules, state.agents, self._runs()) != self._seen or _now() >= self._compare_at

    async def update_schedules(self, client: Client) -> bool:
        """Send changed rows to Temporal, and periodically all rows; return whether nothing has to be retried soon.

        Raises ``RPCError`` when Temporal cannot list its schedules.
        """
        due = _now() >= self._compare_at
        if due:
            # Listed before the rows are read: a listed schedule without a row then belongs to a deleted row.
            own_ids = re.compile(re.escape(schedule_id(self._runs().queues.main, "")) + "(heartbeat|cron)-[0-9]+")
            listed = await client.list_schedules(page_size=1000)
            self._known |= {entry.id async for entry in listed if own_ids.fullmatch(entry.id)}
        snapshot = await asyncio.to_thread(self._read_rows, self._runs(), even_if_unchanged=due or bool(self._to_retry))
        if snapshot is None:
            return True
        to_retry, self._to_retry, self._seen = self._to_retry, set(), None
        changed = [
            (row, desired)
            for row, desired in snapshot.desired
            if due or desired.id in to_retry or _is_outdated(row, desired)
        ]
        outcomes = await gather_limited(AT_ONCE, lambda pair: self._update_schedule(client, *pair), changed)
        await asyncio.to_thread(self._record_outcomes, [*snapshot.unreadable, *filter(None, outcomes)], changed)
        await gather_limited(AT_ONCE, partial(self._remove_schedule, client), self._known - snapshot.ids)
        self._known |= snapshot.ids
        self._seen = snapshot.stamp
        if due:
            self._compare_at = _now() + self._settings().compare_minutes * 60
        return not self._to_retry

    async def _update_schedule(
        self, client: Client, planned: ScheduleColumns, desired: DesiredSchedule
    ) -> FollowedSchedule | None:
        """Update Temporal for one row and return the outcome; None if the update should be retried soon."""
        try:
            await put_schedule(client, desired, overwrite=_is_outdated(planned, desired))
        except RPCError as error:
            if error.status not in REFUSALS:
                log.info("schedule.postponed", schedule=planned.ref, status=error.status.name)
                self._to_retry.add(desired.id)
            if error.status not in REFUSALS | TEMPORARY_REFUSALS:
                return None
            return FollowedSchedule(planned, planned.followed, f"Temporal refused: {error.message}"[:300])
        return FollowedSchedule(planned, desired.digest)

    async def _remove_schedule(self, client: Client, temporal_id: str) -> None:
        try:
            await remove_schedule(client, temporal_id, self._runs().queues.main)
        except RPCError as error:
            log.info("schedule.not_removed", schedule=temporal_id, status=error.status.name)
            self._to_retry.add(temporal_id)
        else:
            self._known.discard(temporal_id)

    def _read_rows(self, runs: RunSettings, *, even_if_unchanged: bool) -> ScheduleSnapshot | None:
        with self._store.view() as tx:
            versions = tx.system.versions.read_versions()
            stamp = (versions.schedules, versions.agents, runs)
            if stamp == self._seen and not even_if_unchanged:
                return None
            rows, now = tx.background.schedules.list_followed_schedules(), tx.now
        ids = frozenset(schedule_id(runs.queues.main, planned.ref) for planned, _ in rows)
        schedules, unreadable = [], []
        for planned, agent in rows:
            try:
                schedules.append((planned, desired_schedule(planned, agent, runs, now)))
            except InvalidEdit as error:
                unreadable.append(FollowedSchedule(planned, planned.followed, str(error)))
        return ScheduleSnapshot(stamp, ids, schedules, unreadable)

    def _record_outcomes(
        self, outcomes: Sequence[FollowedSchedule], sent: Sequence[tuple[ScheduleColumns, DesiredSchedule]]
    ) -> None:
        """Store the outcomes, and start the runs of one-time schedules that became due before Temporal had them.

        Both in one transaction: a row whose outcome is stored is not sent again, so its run would wait for the next
        full comparison.
        """
        changed = [
            outcome
            for outcome in outcomes
            if (outcome.planned.followed, outcome.planned.follow_error) != (outcome.digest, outcome.error)
        ]
        once = [
            (planned.ref, desired.id) for planned, desired in sent if planned.ended_at is None and runs_once(planned)
        ]
        if not changed and not once:
            return
        with self._store.begin() as tx:
            tx.background.schedules.store_results(changed)
            begun = [ref for ref, temporal_id in once if tx.background.runs.begin_missed_run(ref, temporal_id)]
        for outcome in changed:
            if outcome.error:
                log.warning("schedule.not_followed", schedule=outcome.planned.ref, reason=outcome.error)
        for ref in begun:
            log.info("schedule.late", schedule=ref)


def _is_outdated(planned: ScheduleColumns, desired: DesiredSchedule) -> bool:
    """Return whether Temporal has an older version of a row, or refused the row's last update."""
    return planned.followed != desired.digest or bool(planned.follow_error)


def _now() -> float:
    return asyncio.get_running_loop().time()
