"""Works on batches: has each of their jobs replayed or cancelled in its turn, exactly once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from maestro.domain.errors import MaestroError, StoreBusy
from maestro.domain.jobs.batches import AT_ONCE, IN_A_LANE, BatchAction, ItemState, ReplayBatch, next_places
from maestro.domain.jobs.job import Edits, JobStatus
from maestro.store.audit import coming_from
from maestro.store.changes import StoreState
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from temporal.control import WITHOUT_A_WORKFLOW, begin_again, stop

LOOK_SECONDS = 0.5
"""How late at most a batch is seen that another process began."""

AFTER_TROUBLE_SECONDS = 5.0
"""How long a store that does not answer is left alone."""

BROKE = "it could not be begun; the log has the error"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Turn:
    """The items of a batch whose turn it is, by their places; there are some."""

    batch: ReplayBatch
    places: Sequence[int]


class BatchWork:
    """Begins the jobs of batches, few at a time.

    Any number of processes may do so at once: an item is settled in the transaction of what is done with its job, and
    whoever comes second finds it settled.
    """

    def __init__(self, store: Store, interrupt: Callable[[str], Awaitable[None]], wake: Callable[[], None]) -> None:
        """``interrupt`` tells the workflow of a stopped job, ``wake`` a dispatcher that there are jobs."""
        self._store = store
        self._interrupt = interrupt
        self._wake = wake
        self._seen = 0

    async def run(self) -> None:
        """Work until cancelled; what is left then is begun by the next one who does this.

        A place is free when a job has ended, so each look that finds the store changed is followed by an attempt.
        """
        changes = self._store.changes
        with changes.subscribed(self._has_news, lambda: LOOK_SECONDS) as changed:
            while True:
                await changed.wait()
                changed.clear()
                self._seen = changes.state.number if changes.state is not None else 0
                try:
                    if await self.advance():
                        changed.set()
                except StoreBusy as error:
                    log.warning("batches.postponed", reason=str(error))
                    await asyncio.sleep(AFTER_TROUBLE_SECONDS)
                    changed.set()

    def _has_news(self, state: StoreState) -> bool:
        return state.batches and state.number != self._seen

    async def advance(self) -> bool:
        """Let those begin whose turn it is, and say whether there were any."""
        turns = await asyncio.to_thread(self._turns)
        for turn in turns:
            stopped = [await asyncio.to_thread(self._settle, turn.batch, place) for place in turn.places]
            self._wake()
            await asyncio.gather(*(self._interrupt(job_id) for job_id in stopped if job_id is not None))
        return bool(turns)

    def _turns(self) -> list[Turn]:
        with self._store.view() as tx:
            batches = tx.batches.open()
            lanes = list(tx.batches.open_lanes()) if batches else []
            found = [Turn(batch, _places(tx, batch, lanes)) for batch in batches]
        return [turn for turn in found if turn.places]

    def _settle(self, batch: ReplayBatch, place: int) -> str | None:
        """Do what is asked for with one job, and write what came of it; return it if its workflow is to be told."""
        try:
            return self._done(batch, place)
        except StoreBusy:
            raise
        # A job that nobody can begin, whatever is wrong with it, must not keep the others of its batch from their turn.
        except Exception as error:
            log.exception("batches.job_failed", batch=batch.id, place=place)
            with self._store.begin() as tx:
                tx.batches.settle(batch.id, place, ItemState.REFUSED, problem=f"{BROKE} ({type(error).__name__})")
            return None

    def _done(self, batch: ReplayBatch, place: int) -> str | None:
        with coming_from(batch.origin), self._store.begin() as tx:
            job_id = tx.batches.take(batch.id, place)
            if job_id is None:
                return None
            done = tx.attempt(lambda: _do(tx, batch, job_id))
            if isinstance(done, MaestroError):
                tx.batches.settle(batch.id, place, ItemState.REFUSED, problem=str(done))
                return None
            tx.batches.settle(batch.id, place, ItemState.BEGUN, began=done.job_id)
            return done.job_id if done.in_workflow else None


@dataclass(frozen=True)
class Done:
    """The job that runs now, or was told to stop, and whether its workflow is to be told."""

    job_id: str
    in_workflow: bool = False


def _places(tx: Transaction, batch: ReplayBatch, lanes: list[str]) -> Sequence[int]:
    """Return the items that begin now, and add their lanes to those that are taken."""
    if batch.action is BatchAction.CANCEL:  # who stops keeps nobody waiting
        return [place for place, _ in tx.batches.waiting(batch.id, AT_ONCE)]
    full = [lane for lane, count in Counter(lanes).items() if lane and count >= IN_A_LANE]
    waiting = tx.batches.waiting(batch.id, AT_ONCE, but=full)
    places = next_places(waiting, lanes)
    lanes += [lane for place, lane in waiting if place in places]
    return places


def _do(tx: Transaction, batch: ReplayBatch, job_id: str) -> Done:
    mode = batch.action.mode
    if mode is not None:
        edits = Edits.model_validate_json(batch.edits) if batch.edits else None
        return Done(begin_again(tx, job_id, mode, batch.actor, edits))
    status: JobStatus = stop(tx, job_id, batch.actor)
    return Done(job_id, status not in WITHOUT_A_WORKFLOW)
