"""What operators do with jobs: resume, restart, cancel (design invariant 4)."""

import asyncio
from collections.abc import Awaitable, Callable

from temporalio.client import Client
from temporalio.service import RPCError
from ulid import ULID

from maestro.domain.errors import Conflict
from maestro.domain.jobs.job import Ending, Job, JobStatus
from maestro.domain.jobs.replay import ReplayMode, refusal, restarted
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

    async def replay(self, job_id: str, mode: ReplayMode, actor: str) -> str:
        """Resume or restart an ended job and return the id of the job that runs now.

        Raises ``NotFound``, and ``Conflict`` when the job's state does not allow it.
        """
        running = await asyncio.to_thread(self._replay, job_id, mode, actor)
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

    def _replay(self, job_id: str, mode: ReplayMode, actor: str) -> str:
        with self._store.begin() as tx:
            return begin_again(tx, job_id, mode, actor)

    def _stop(self, job_id: str, actor: str) -> JobStatus:
        with self._store.begin() as tx:
            return stop(tx, job_id, actor)


def begin_again(tx: Transaction, job_id: str, mode: ReplayMode, actor: str) -> str:
    """Resume or restart an ended job within a transaction of the caller, who wakes a dispatcher after it.

    Return the id of the job that runs now; raises as ``TemporalJobControl.replay`` does.
    """
    job = tx.jobs.get(job_id)
    newest = _newest(tx, job)
    reason = refusal(job, newest, mode, tx.delegations.below([newest.id]))
    if reason is not None:
        raise Conflict(reason)
    tx.audit.add(actor, f"job.{mode}", job_id)
    if mode is ReplayMode.RESUME:
        tx.deliveries.revive(job_id)
        tx.channels.enable(job.address)  # who resumes a job means its sends too: what closed it may be mended
        tx.delegations.reopened(job_id)
        return tx.jobs.reopen(job).id
    again: Job = tx.jobs.add(restarted(newest, f"{newest.kind}-{ULID()}", tx.now))
    if newest.inbox_id is not None and newest.parent_id is None:
        tx.merges.follow([newest.id], again.id)
    return again.id


def stop(tx: Transaction, job_id: str, actor: str) -> JobStatus:
    """Stop an open job within a transaction of the caller and return where it stood; raises as ``cancel`` does.

    Where it stood in a workflow, ``TemporalJobControl.interrupt`` tells that, once the transaction is committed.
    """
    job = tx.jobs.get(job_id)
    if job.status.ended:
        raise Conflict(f"job {job_id} is {job.status} already; there is nothing to cancel")
    tx.audit.add(actor, "job.cancel", job_id)
    tx.jobs.request_stop(job_id)
    if job.status in WITHOUT_A_WORKFLOW:
        tx.close_job(job_id, Ending(status=JobStatus.CANCELLED, reason=f"cancelled by {actor}"))
    return job.status


def _newest(tx: Transaction, job: Job) -> Job:
    """Return the job that answers the same message, or does the same task, now."""
    if job.parent_id is not None or job.inbox_id is None:
        return tx.delegations.newest(job)
    return tx.jobs.get(tx.inbox.get(job.inbox_id).job_id)
