"""The reconciler: compares the open jobs of the store with the workflows in Temporal, and corrects differences.

See docs/invariants.md: store is the truth.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial

import structlog
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from ulid import ULID

from maestro.domain.jobs.job import ENDED_IN_TEMPORAL, FAILURE_NOTICE, Job, JobEnding, JobStatus, new_notice_job
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.supervision import gather_limited

AT_ONCE = 20

log = structlog.get_logger(__name__)


BY_A_PERSON = {
    WorkflowExecutionStatus.TERMINATED: JobEnding(
        status=JobStatus.CANCELLED, error="Terminated", reason=f"{ENDED_IN_TEMPORAL}terminated by a person"
    ),
    WorkflowExecutionStatus.CANCELED: JobEnding(
        status=JobStatus.CANCELLED, error="Cancelled", reason=f"{ENDED_IN_TEMPORAL}cancelled by a person"
    ),
}

BY_ITSELF = frozenset(
    {WorkflowExecutionStatus.FAILED, WorkflowExecutionStatus.TIMED_OUT, WorkflowExecutionStatus.COMPLETED}
)
"""Ends of a workflow that should have closed its job first; an open job means a fault, such as changed code."""

RECOVERIES = 3
"""The most new runs of a job whose workflow ended while the job was open; after these, the job fails."""


class Reconciler:
    """Resumes open jobs without a workflow, and closes jobs after an operator ended their workflow in Temporal."""

    def __init__(self, store: Store, seconds: Callable[[], float], released: Callable[[], None]) -> None:
        self._store = store
        self._seconds = seconds
        self._released = released

    async def run(self, client: Client) -> None:
        """Compare the jobs periodically until cancelled; a comparison while Temporal is away is skipped."""
        while True:
            try:
                await self.reconcile_jobs(client)
            except RPCError as error:
                # A Temporal server or proxy that goes down raises many kinds of errors; the next comparison comes soon.
                log.warning("reconcile.postponed", status=error.status.name)
            await asyncio.sleep(self._seconds())

    async def reconcile_jobs(self, client: Client) -> None:
        """Compare every running job with its workflow once, and correct the differences."""
        jobs = await asyncio.to_thread(self._store.read, lambda tx: list(tx.jobs.list_running()))
        repairs = await gather_limited(AT_ONCE, partial(self._repair_job, client), jobs)
        await asyncio.to_thread(self._free_outbound_lanes)
        if any(repairs):
            self._released()

    async def _repair_job(self, client: Client, job: Job) -> bool:
        """Compare a job with its workflow, and return whether the job was changed."""
        try:
            description = await client.get_workflow_handle(job.id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return await asyncio.to_thread(self._resume_job, job, "the workflow was gone from Temporal")
        if description.status in BY_A_PERSON:
            return await asyncio.to_thread(self._close_job, job, BY_A_PERSON[description.status])
        if description.status in BY_ITSELF:
            reason = f"its workflow {description.status.name.lower()} before the job ended"
            return await asyncio.to_thread(self._resume_job, job, reason, RECOVERIES)
        return False

    def _resume_job(self, job: Job, reason: str, limit: float = math.inf) -> bool:
        """Start a new run of the job in its position; after ``limit`` recoveries, fail the job and notify its user."""
        with self._store.begin() as tx:
            present = tx.jobs.get(job.id)
            if not is_same_run(present, job):
                return False
            if present.recoveries >= limit:
                _end_job(tx, present, JobEnding(status=JobStatus.FAILED, error="WorkflowEnded", reason=reason))
                has_user = present.inbox_id is not None and not (present.notice or present.what_if)
                if has_user and tx.jobs.delegations.find_delegator(present) is None:
                    tx.jobs.add(new_notice_job(present, f"{present.kind}-{ULID()}", FAILURE_NOTICE, tx.now))
                return True
            tx.jobs.restart_workflow(present)
            tx.system.audit.add_entry("maestro", "job.resumed", job.id, reason)
        return True

    def _close_job(self, job: Job, ending: JobEnding) -> bool:
        with self._store.begin() as tx:
            present = tx.jobs.get(job.id)
            if not is_same_run(present, job):
                return False
            _end_job(tx, present, ending)
        return True

    def _free_outbound_lanes(self) -> None:
        with self._store.begin() as tx:
            for job_id in tx.deliveries.list_lanes_of_ended_jobs():
                tx.deliveries.release_lanes(job_id)


def is_same_run(current: Job, earlier: Job) -> bool:
    """Return whether a job still is in the run about which Temporal answered; if not, the answer is outdated."""
    return (current.status, current.run) == (JobStatus.RUNNING, earlier.run)


def _end_job(tx: Transaction, job: Job, ending: JobEnding) -> None:
    tx.jobs.steps.interrupt_all(job.id)
    tx.jobs.close_job(job.id, ending)
    tx.system.audit.add_entry("maestro", f"job.{ending.status}", job.id, ending.reason)
