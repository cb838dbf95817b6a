"""Compares the open jobs of the store with Temporal, because the store is the truth (design invariant 8)."""

import asyncio
from collections.abc import Callable
from enum import StrEnum

import structlog
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.jobs import Ending, Job, JobStatus
from maestro.store.store import Store

AT_ONCE = 20

log = structlog.get_logger(__name__)


class Finding(StrEnum):
    """What the reconciler did about a job."""

    FINE = "fine"
    RESUMED = "resumed"
    CANCELLED = "cancelled"
    FAILED = "failed"


ENDED_WITHOUT_US = {
    WorkflowExecutionStatus.TERMINATED: Ending(
        status=JobStatus.CANCELLED, error="Terminated", reason="its workflow was terminated by a person"
    ),
    WorkflowExecutionStatus.CANCELED: Ending(
        status=JobStatus.CANCELLED, error="Cancelled", reason="its workflow was cancelled by a person"
    ),
    WorkflowExecutionStatus.FAILED: Ending(
        status=JobStatus.FAILED, error="WorkflowFailed", reason="its workflow failed before it could close the job"
    ),
    WorkflowExecutionStatus.TIMED_OUT: Ending(
        status=JobStatus.FAILED, error="WorkflowTimedOut", reason="its workflow ran out of time"
    ),
    WorkflowExecutionStatus.COMPLETED: Ending(
        status=JobStatus.FAILED, error="WorkflowEnded", reason="its workflow ended without closing the job"
    ),
}


class Reconciler:
    """Resumes jobs whose workflow is gone, and closes those whose workflow ended without them."""

    def __init__(self, store: Store, seconds: float, released: Callable[[], None]) -> None:
        self._store = store
        self._seconds = seconds
        self._released = released

    async def run(self, client: Client) -> None:
        """Reconcile now and then until cancelled; while Temporal is away there is nothing to compare with."""
        while True:
            try:
                await self.reconcile(client)
            except RPCError as error:
                # A server that dies, or a proxy before it, fails in every possible way; the next look comes soon.
                log.warning("reconcile.postponed", status=error.status.name)
            await asyncio.sleep(self._seconds)

    async def reconcile(self, client: Client) -> dict[str, Finding]:
        """Look at every running job once and return what was done about each."""
        jobs = await asyncio.to_thread(self._running)
        gate = asyncio.Semaphore(AT_ONCE)

        async def look(job: Job) -> Finding:
            async with gate:
                return await self._look(client, job)

        findings = await asyncio.gather(*(look(job) for job in jobs))
        await asyncio.to_thread(self._free_outbound_lanes)
        if any(finding is not Finding.FINE for finding in findings):
            self._released()
        return {job.id: finding for job, finding in zip(jobs, findings, strict=True)}

    async def _look(self, client: Client, job: Job) -> Finding:
        try:
            description = await client.get_workflow_handle(job.id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return await asyncio.to_thread(self._resume, job)
        ending = ENDED_WITHOUT_US.get(description.status) if description.status else None
        return Finding.FINE if ending is None else await asyncio.to_thread(self._close, job, ending)

    def _running(self) -> list[Job]:
        with self._store.view() as tx:
            return list(tx.jobs.running())

    def _resume(self, job: Job) -> Finding:
        with self._store.begin() as tx:
            present = tx.jobs.get(job.id)
            if (present.status, present.run) != (JobStatus.RUNNING, job.run):
                return Finding.FINE
            tx.jobs.rerun(present)
            tx.audit.add("maestro", "job.resumed", job.id, "its workflow was gone from Temporal")
        return Finding.RESUMED

    def _close(self, job: Job, ending: Ending) -> Finding:
        """Close the job, unless it moved on between our reading its row and asking Temporal."""
        with self._store.begin() as tx:
            present = tx.jobs.get(job.id)
            if (present.status, present.run) != (JobStatus.RUNNING, job.run):
                return Finding.FINE
            tx.steps.interrupt_all(job.id)
            tx.close_job(job.id, ending)
            tx.audit.add("maestro", f"job.{ending.status}", job.id, ending.reason)
        return Finding.CANCELLED if ending.status is JobStatus.CANCELLED else Finding.FAILED

    def _free_outbound_lanes(self) -> None:
        with self._store.begin() as tx:
            for job_id in tx.deliveries.held_by_ended_jobs():
                tx.deliveries.leave_lanes(job_id)
