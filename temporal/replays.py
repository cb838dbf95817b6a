"""Replays and cancellations: of one job, and of the jobs of a batch, each exactly once.

See docs/invariants.md: resume.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog
from temporalio.client import Client
from temporalio.service import RPCError
from ulid import ULID

from maestro.domain.errors import Conflict, MaestroError, StoreBusy
from maestro.domain.jobs.batches import AT_ONCE, IN_A_LANE, BatchAction, ItemState, ReplayBatch, next_places
from maestro.domain.jobs.job import CANCELLED_BY, NO_EDITS, Edits, Ending, Job, JobStatus
from maestro.domain.jobs.replay import ReplayMode, restarted, what_if
from maestro.store.cache import StoreState
from maestro.store.replays import assign, judged
from maestro.store.store import Store
from maestro.store.transaction import Transaction, in_savepoint
from maestro.store.users.audit import coming_from

CANCEL_TIMEOUT = 5.0
WITHOUT_A_WORKFLOW = (JobStatus.PENDING, JobStatus.WAITING)

ClientSource = Callable[[], Awaitable[Client | None]]

LOOK_SECONDS = 0.5
"""How late at most a batch is seen that another process began."""

AFTER_TROUBLE_SECONDS = 5.0
"""How long a store that does not answer is left alone."""

BROKE = "it could not be begun; the log has the error"

log = structlog.get_logger(__name__)


class TemporalJobControl:
    """Works on the store, where a dispatcher finds what is to do; only a running workflow is told directly."""

    def __init__(self, store: Store, client: ClientSource, wake: Callable[[], None]) -> None:
        self._store = store
        self._client = client
        self._wake = wake

    async def replay(self, job_id: str, mode: ReplayMode, actor: str, edits: Edits | None = None) -> str:
        """Resume, restart or try an ended job and return the id of the job that runs now.

        Raises ``NotFound``, ``Conflict`` when the job's state does not allow it, and ``InvalidEdit``.
        """
        running = await asyncio.to_thread(self._replay, job_id, mode, actor, edits)
        self._wake()
        return running

    async def cancel(self, job_id: str, actor: str) -> None:
        """Stop an open job for good; raises ``NotFound``, and ``Conflict`` when it has ended."""
        status = await asyncio.to_thread(self._stop, job_id, actor)
        if status not in WITHOUT_A_WORKFLOW:
            await self.interrupt(job_id)
        self._wake()

    async def interrupt(self, job_id: str) -> None:
        """Interrupt the waits of a stopped job's workflow; without Temporal its row alone stops it at its next step."""
        client = await self._client()
        if client is None:
            return
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await client.get_workflow_handle(job_id).cancel()
        except (RPCError, TimeoutError):
            return

    def _replay(self, job_id: str, mode: ReplayMode, actor: str, edits: Edits | None) -> str:
        with self._store.begin() as tx:
            return replay_job(tx, job_id, mode, actor, edits)

    def _stop(self, job_id: str, actor: str) -> JobStatus:
        with self._store.begin() as tx:
            return stop_job(tx, job_id, actor)


def replay_job(tx: Transaction, job_id: str, mode: ReplayMode, actor: str, edits: Edits | None = None) -> str:
    """Let a dispatcher begin an ended job again, and return the id of the job that runs then.

    Raises ``NotFound``, ``Conflict`` and ``InvalidEdit``; the caller wakes the dispatcher.
    """
    job = tx.jobs.get(job_id)
    newest = judged(tx, job, mode, edits)
    if mode is ReplayMode.RESUME:
        tx.system.audit.add(actor, f"job.{mode}", job_id)
        return _resume(tx, job)
    again = _start_what_if(tx, job, edits) if mode is ReplayMode.WHAT_IF else _restart(tx, newest, edits)
    changed = ", ".join(name for name, value in edits or NO_EDITS if value is not None)
    told = f"as {again.id}" + (f", with another {changed}" if changed else "")
    tx.system.audit.add(actor, f"job.{mode}", job_id, told)
    return again.id


def stop_job(tx: Transaction, job_id: str, actor: str) -> JobStatus:
    """Ask an open job to stop and return how it stood: one without a workflow has ended now.

    Raises ``NotFound``, and ``Conflict`` when it has ended.
    """
    job = tx.jobs.get(job_id)
    status = job.status
    if status.ended:
        raise Conflict(f"job {job_id} is {status} already; there is nothing to cancel")
    tx.system.audit.add(actor, "job.cancel", job_id)
    tx.jobs.request_stop(job_id)
    reason = f"{CANCELLED_BY}{actor}"
    if status in WITHOUT_A_WORKFLOW:
        tx.jobs.close(job_id, Ending(status=JobStatus.CANCELLED, reason=reason))
    else:
        tx.jobs.update(job_id, reason=reason)  # for the step that closes it
    return status


def _resume(tx: Transaction, job: Job) -> str:
    if not job.what_if:
        if job.status is JobStatus.COMPLETED:
            tx.deliveries.reports.release(job.id)
        tx.deliveries.revive(job.id)
        tx.bots.channels.enable(job.address)  # who resumes a job means its sends too: what closed it may be mended
        tx.jobs.delegations.reopened(job.id)
    return tx.jobs.reopen(job).id


def _restart(tx: Transaction, newest: Job, edits: Edits | None) -> Job:
    again: Job = tx.jobs.add(assign(tx, restarted(newest, f"{newest.kind}-{ULID()}", tx.now, edits)))
    if newest.inbox_id is not None and newest.parent_id is None:
        tx.jobs.merged.follow([newest.id], again.id)
    return again


def _start_what_if(tx: Transaction, job: Job, edits: Edits | None) -> Job:
    shown: Job = tx.jobs.add(assign(tx, what_if(job, f"what-if-{ULID()}", tx.now, edits)))
    return shown


@dataclass(frozen=True)
class DueItems:
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

    def _turns(self) -> list[DueItems]:
        with self._store.view() as tx:
            batches = tx.jobs.batches.open()
            lanes = list(tx.jobs.batches.open_lanes()) if batches else []
            found = [DueItems(batch, _places(tx, batch, lanes)) for batch in batches]
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
                tx.jobs.batches.settle(batch.id, place, ItemState.REFUSED, problem=f"{BROKE} ({type(error).__name__})")
            return None

    def _done(self, batch: ReplayBatch, place: int) -> str | None:
        with coming_from(batch.origin), self._store.begin() as tx:
            job_id = tx.jobs.batches.take(batch.id, place)
            if job_id is None:
                return None
            done = in_savepoint(tx, lambda: _do(tx, batch, job_id))
            if isinstance(done, MaestroError):
                tx.jobs.batches.settle(batch.id, place, ItemState.REFUSED, problem=str(done))
                return None
            tx.jobs.batches.settle(batch.id, place, ItemState.BEGUN, began=done.job_id)
            return done.job_id if done.in_workflow else None


@dataclass(frozen=True)
class StartedReplay:
    """The job that runs now, or was told to stop, and whether its workflow is to be told."""

    job_id: str
    in_workflow: bool = False


def _places(tx: Transaction, batch: ReplayBatch, lanes: list[str]) -> Sequence[int]:
    """Return the items that begin now, and add their lanes to those that are taken."""
    if batch.action is BatchAction.CANCEL:  # who stops keeps nobody waiting
        return [place for place, _ in tx.jobs.batches.waiting(batch.id, AT_ONCE)]
    full = [lane for lane, count in Counter(lanes).items() if lane and count >= IN_A_LANE]
    waiting = tx.jobs.batches.waiting(batch.id, AT_ONCE, but=full)
    places = next_places(waiting, lanes)
    lanes += [lane for place, lane in waiting if place in places]
    return places


def _do(tx: Transaction, batch: ReplayBatch, job_id: str) -> StartedReplay:
    mode = batch.action.mode
    if mode is not None:
        edits = Edits.model_validate_json(batch.edits) if batch.edits else None
        return StartedReplay(replay_job(tx, job_id, mode, batch.actor, edits))
    status: JobStatus = stop_job(tx, job_id, batch.actor)
    return StartedReplay(job_id, status not in WITHOUT_A_WORKFLOW)
