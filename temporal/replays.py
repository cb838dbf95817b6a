"""Batches: replays or cancels each job of a batch exactly once, and cancels the workflows of stopped jobs.

See docs/invariants.md: resume.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from maestro.domain.errors import MaestroError, StoreBusy
from maestro.domain.jobs.batches import AT_ONCE, IN_A_LANE, BatchAction, ItemState, ReplayBatch, next_positions
from maestro.domain.jobs.job import JobEdits
from maestro.operations.jobs import WITHOUT_A_WORKFLOW, InterruptWorkflow, replay_job, stop_job
from maestro.store.store import Store
from maestro.store.transaction import Transaction, run_in_savepoint
from maestro.store.users.audit import set_origin

ClientSource = Callable[[], Awaitable[Client | None]]

LOOK_SECONDS = 0.5
"""The longest time in seconds until this process finds a batch that another process added."""

AFTER_TROUBLE_SECONDS = 5.0
"""Seconds to wait before the store is read again after a failure."""

BROKE = "this job could not be replayed; the log has the error"

log = structlog.get_logger(__name__)


def workflow_interrupter(client: ClientSource) -> InterruptWorkflow:
    """Return a function that cancels a stopped job's workflow, so that the workflow ends its waits.

    Without a connection to Temporal, the job stops at its next step, which reads the stop from the job's row.
    """

    async def interrupt(job_id: str) -> None:
        connected = await client()
        if connected is not None:
            with suppress(RPCError, TimeoutError):
                async with asyncio.timeout(5):
                    await connected.get_workflow_handle(job_id).cancel()

    return interrupt


class BatchWork:
    """The loop that replays or cancels the jobs of batches, a few at a time.

    Several processes may work on one batch: the transaction that replays a job also settles the item, so that no other
    process repeats it.
    """

    def __init__(self, store: Store, interrupt: InterruptWorkflow, wake: Callable[[], None]) -> None:
        """``interrupt`` ends the waits of a stopped job's workflow, ``wake`` notifies a dispatcher of new jobs."""
        self._store = store
        self._interrupt = interrupt
        self._wake = wake
        self._seen = 0

    async def run(self) -> None:
        """Process batches until cancelled; the next process continues with the open items.

        Each change of the store triggers a new check, because a job that ended frees a slot.
        """
        changes = self._store.changes
        with changes.subscribe(
            lambda state: state.batches and state.number != self._seen, lambda: LOOK_SECONDS
        ) as changed:
            while True:
                await changed.wait()
                changed.clear()
                self._seen = changes.state.number if changes.state is not None else 0
                try:
                    if await self.process_due_items():
                        changed.set()
                except StoreBusy as error:
                    log.warning("batches.postponed", reason=str(error))
                    await asyncio.sleep(AFTER_TROUBLE_SECONDS)
                    changed.set()

    async def process_due_items(self) -> bool:
        """Process the items that may begin now, and return whether there were any."""
        due_items = await asyncio.to_thread(self._find_due_items)
        for batch, items in due_items:
            stopped = [await asyncio.to_thread(self._settle_item, batch, item) for item in items]
            self._wake()
            await asyncio.gather(*(self._interrupt(job_id) for job_id in stopped if job_id is not None))
        return bool(due_items)

    def _find_due_items(self) -> list[tuple[ReplayBatch, Sequence[int]]]:
        """Return the open batches that have items to begin now, with the indexes of these items."""
        with self._store.view() as tx:
            batches = tx.jobs.batches.list_open_batches()
            lanes = list(tx.jobs.batches.list_open_lanes()) if batches else []
            due = [(batch, _choose_items(tx, batch, lanes)) for batch in batches]
        return [(batch, items) for batch, items in due if items]

    def _settle_item(self, batch: ReplayBatch, index: int) -> str | None:
        """Replay or cancel one job and record the outcome; return the job's id if its workflow must be interrupted."""
        try:
            return self._process_item(batch, index)
        except StoreBusy:
            raise
        # A job that cannot be started, for whatever reason, must not block the other jobs of its batch.
        except Exception as error:
            log.exception("batches.job_failed", batch=batch.id, place=index)
            with self._store.begin() as tx:
                tx.jobs.batches.settle_item(
                    batch.id, index, ItemState.REFUSED, problem=f"{BROKE} ({type(error).__name__})"
                )
            return None

    def _process_item(self, batch: ReplayBatch, index: int) -> str | None:
        with set_origin(batch.origin), self._store.begin() as tx:
            job_id = tx.jobs.batches.take_item(batch.id, index)
            if job_id is None:
                return None
            result = run_in_savepoint(tx, lambda: _replay_or_stop(tx, batch, job_id))
            if isinstance(result, MaestroError):
                tx.jobs.batches.settle_item(batch.id, index, ItemState.REFUSED, problem=str(result))
                return None
            began, has_workflow = result
            tx.jobs.batches.settle_item(batch.id, index, ItemState.BEGUN, began=began)
            return began if has_workflow else None


def _choose_items(tx: Transaction, batch: ReplayBatch, lanes: list[str]) -> Sequence[int]:
    """Return the indexes of the items that may begin now, and add their lanes to ``lanes``, the lanes in use."""
    if batch.action is BatchAction.CANCEL:  # A cancellation needs no lane, so all items may begin.
        return [index for index, _ in tx.jobs.batches.list_waiting_items(batch.id, AT_ONCE)]
    full = [lane for lane, count in Counter(lanes).items() if lane and count >= IN_A_LANE]
    waiting = tx.jobs.batches.list_waiting_items(batch.id, AT_ONCE, without_lanes=full)
    items = next_positions(waiting, lanes)
    lanes += [lane for item, lane in waiting if item in items]
    return items


def _replay_or_stop(tx: Transaction, batch: ReplayBatch, job_id: str) -> tuple[str, bool]:
    """Return the id of the replayed or stopped job, and whether its workflow has to be interrupted."""
    mode = batch.action.mode
    if mode is not None:
        edits = JobEdits.model_validate_json(batch.edits) if batch.edits else None
        return replay_job(tx, job_id, mode, batch.actor, edits), False
    return job_id, stop_job(tx, job_id, batch.actor) not in WITHOUT_A_WORKFLOW
