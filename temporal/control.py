"""What operators do with jobs: resume, restart, cancel (docs/invariants.md: resume)."""

import asyncio
from collections.abc import Awaitable, Callable

from temporalio.client import Client
from temporalio.service import RPCError
from ulid import ULID

from maestro.domain.errors import Conflict
from maestro.domain.jobs.job import CANCELLED_BY, NO_EDITS, Edits, Ending, Job, JobStatus
from maestro.domain.jobs.replay import ReplayMode, restarted, what_if
from maestro.store.replays import assign, judged
from maestro.store.store import Store
from maestro.store.transaction import Transaction

CANCEL_TIMEOUT = 5.0
WITHOUT_A_WORKFLOW = (JobStatus.PENDING, JobStatus.WAITING)

ClientSource = Callable[[], Awaitable[Client | None]]


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
            return begin_again(tx, job_id, mode, actor, edits)

    def _stop(self, job_id: str, actor: str) -> JobStatus:
        with self._store.begin() as tx:
            return stop(tx, job_id, actor)


def begin_again(tx: Transaction, job_id: str, mode: ReplayMode, actor: str, edits: Edits | None = None) -> str:
    """Let a dispatcher begin an ended job again, and return the id of the job that runs then.

    Raises ``NotFound``, ``Conflict`` and ``InvalidEdit``; the caller wakes the dispatcher.
    """
    job = tx.jobs.get(job_id)
    newest = judged(tx, job, mode, edits)
    if mode is ReplayMode.RESUME:
        tx.audit.add(actor, f"job.{mode}", job_id)
        return _resume(tx, job)
    again = _shown(tx, job, edits) if mode is ReplayMode.WHAT_IF else _restart(tx, newest, edits)
    changed = ", ".join(name for name, value in edits or NO_EDITS if value is not None)
    told = f"as {again.id}" + (f", with another {changed}" if changed else "")
    tx.audit.add(actor, f"job.{mode}", job_id, told)
    return again.id


def stop(tx: Transaction, job_id: str, actor: str) -> JobStatus:
    """Ask an open job to stop and return how it stood: one without a workflow has ended now.

    Raises ``NotFound``, and ``Conflict`` when it has ended.
    """
    job = tx.jobs.get(job_id)
    status = job.status
    if status.ended:
        raise Conflict(f"job {job_id} is {status} already; there is nothing to cancel")
    tx.audit.add(actor, "job.cancel", job_id)
    tx.jobs.request_stop(job_id)
    reason = f"{CANCELLED_BY}{actor}"
    if status in WITHOUT_A_WORKFLOW:
        tx.close_job(job_id, Ending(status=JobStatus.CANCELLED, reason=reason))
    else:
        tx.jobs.update(job_id, reason=reason)  # for the step that closes it
    return status


def _resume(tx: Transaction, job: Job) -> str:
    if not job.what_if:
        if job.status is JobStatus.COMPLETED:
            tx.reports.release(job.id)
        tx.deliveries.revive(job.id)
        tx.channels.enable(job.address)  # who resumes a job means its sends too: what closed it may be mended
        tx.delegations.reopened(job.id)
    return tx.jobs.reopen(job).id


def _restart(tx: Transaction, newest: Job, edits: Edits | None) -> Job:
    again: Job = tx.jobs.add(assign(tx, restarted(newest, f"{newest.kind}-{ULID()}", tx.now, edits)))
    if newest.inbox_id is not None and newest.parent_id is None:
        tx.merges.follow([newest.id], again.id)
    return again


def _shown(tx: Transaction, job: Job, edits: Edits | None) -> Job:
    shown: Job = tx.jobs.add(assign(tx, what_if(job, f"what-if-{ULID()}", tx.now, edits)))
    return shown
