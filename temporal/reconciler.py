"""The reconciler: compares the open jobs of the store with the workflows in Temporal, and corrects differences.

See docs/invariants.md: store is the truth.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial

import structlog
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode
from ulid import ULID

from maestro.domain.jobs.job import ENDED_IN_TEMPORAL, FAILURE_NOTICE, Job, JobEnding, JobStatus, new_notice_job
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.supervision import gather_limited
from temporal.sdk import NONDETERMINISM

AT_ONCE = 20
SETTLE_SECONDS = 0.5
"""Seconds from the report that workflow code diverged from a history until Temporal knows the end of that workflow."""

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
"""The most new runs of a job whose workflow ended while the job was open; after these, the job fails.

Runs after a change of the release are not counted.
"""


class Reconciler:
    """Resumes open jobs without a workflow, and closes jobs after an operator ended their workflow in Temporal."""

    def __init__(self, store: Store, seconds: Callable[[], float], released: Callable[[], None]) -> None:
        self._store = store
        self._seconds = seconds
        self._released = released
        self._woken = asyncio.Event()

    def check_soon(self) -> None:
        """Compare the jobs in a moment, because workflows have failed; called on the event loop."""
        self._woken.set()

    async def run(self, client: Client) -> None:
        """Compare the jobs periodically until cancelled; a comparison while Temporal is away is skipped."""
        while True:
            try:
                await self.reconcile_jobs(client)
            except RPCError as error:
                # A Temporal server or proxy that goes down raises many kinds of errors; the next comparison comes soon.
                log.warning("reconcile.postponed", status=error.status.name)
            try:
                async with asyncio.timeout(self._seconds()):
                    await self._woken.wait()
            except TimeoutError:
                continue
            self._woken.clear()
            await asyncio.sleep(SETTLE_SECONDS)

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
            failed = description.status is WorkflowExecutionStatus.FAILED
            if failed and await _diverged_after_upgrade(client, description):
                reason = "a release with other workflow code continued its workflow"
                return await asyncio.to_thread(self._resume_job, job, reason, counted=False)
            reason = f"its workflow {description.status.name.lower()} before the job ended"
            return await asyncio.to_thread(self._resume_job, job, reason, RECOVERIES)
        return False

    def _resume_job(self, job: Job, reason: str, limit: float = math.inf, *, counted: bool = True) -> bool:
        """Start a new run of the job in its position; after ``limit`` recoveries, fail the job and notify its user.

        A run that is not ``counted`` is no recovery from a fault of the job.
        """
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
            tx.jobs.restart_workflow(present, counted=counted)
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


async def _diverged_after_upgrade(client: Client, description: WorkflowExecutionDescription) -> bool:
    """Return whether a workflow failed because the code of another release than before went another way."""
    handle = client.get_workflow_handle(description.id, run_id=description.run_id)
    return has_diverged(history := await handle.fetch_history()) and len(builds_of(history)) > 1


def has_diverged(history: WorkflowHistory) -> bool:
    """Return whether a workflow failed because its code went another way than its history."""
    failure = history.events[-1].workflow_execution_failed_event_attributes.failure
    return failure.message.startswith(NONDETERMINISM)


def builds_of(history: WorkflowHistory) -> frozenset[str]:
    """Return the builds of the workers that ran a workflow."""
    completed = (event.workflow_task_completed_event_attributes for event in history.events)
    builds = (done.deployment_version.build_id or done.worker_version.build_id for done in completed)
    return frozenset(filter(None, builds))


def is_same_run(current: Job, earlier: Job) -> bool:
    """Return whether a job still is in the run about which Temporal answered; if not, the answer is outdated."""
    return (current.status, current.run) == (JobStatus.RUNNING, earlier.run)


def _end_job(tx: Transaction, job: Job, ending: JobEnding) -> None:
    tx.jobs.steps.interrupt_all(job.id)
    tx.jobs.close_job(job.id, ending)
    tx.system.audit.add_entry("maestro", f"job.{ending.status}", job.id, ending.reason)
