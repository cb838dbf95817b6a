"""Ends a run without an answer: closes the job with its reason, or parks the job until it can continue."""

from collections.abc import Callable
from dataclasses import dataclass

from temporalio import activity
from ulid import ULID

from activities.schedules import pause_failing, skip_run
from connectors.hub import TypingIndicators
from maestro.domain.errors import WaitReason
from maestro.domain.jobs.busy import INTERRUPTED
from maestro.domain.jobs.flow import CloseStep, ParkStep, StatusOutcome
from maestro.domain.jobs.job import ENDED_IN_TEMPORAL, Job, JobEnding, JobStatus, StepState, Wait, new_notice_job
from maestro.domain.jobs.steps import waiting_notice
from maestro.domain.llm.calls import PASSING
from maestro.domain.messages import LaneKey
from maestro.domain.settings.jobs import ScheduleSettings
from maestro.store.store import Store
from maestro.store.transaction import Transaction


@dataclass(frozen=True)
class ClosingActivities:
    """Closes jobs that ended without an answer, and parks jobs that have to wait.

    A parked run of a schedule is skipped when the schedule's next run begins. See docs/invariants.md: no silent end,
    lanes; docs/decisions.md: failure notice, retry, questions.
    """

    store: Store
    typing: TypingIndicators
    released: Callable[[], None]
    schedules: Callable[[], ScheduleSettings]

    @activity.defn(no_thread_cancel_exception=True)
    def close_job(self, step: CloseStep) -> StatusOutcome:
        """Close the job with its reason and free its lanes; a job that was resumed meanwhile stays unchanged."""
        self.typing.stop_indicator(step.job_id)
        with self.store.begin() as tx:
            if tx.jobs.get(step.job_id).run == step.run:
                _close_job(tx, step)
                pause_failing(tx, step.job_id, self.schedules().pause_after_failures)
            outcome = tx.jobs.steps.finish_step(step, StatusOutcome(status=tx.jobs.read_status(step.job_id)))
            tx.call_after_commit(self.released)
        return outcome

    @activity.defn(no_thread_cancel_exception=True)
    def park_job(self, step: ParkStep) -> StatusOutcome:
        """Park the job for the reasons that its steps reported; if a user stopped it meanwhile, cancel it instead."""
        self.typing.stop_indicator(step.job_id)
        with self.store.begin() as tx:
            job = tx.jobs.get(step.job_id)
            if job.stop_requested:
                reason = INTERRUPTED if job.merged_into is not None else job.reason or "stopped by a person"
                tx.jobs.close_job(job.id, JobEnding(status=JobStatus.CANCELLED, error="Stopped", reason=reason))
            elif not job.status.ended:
                _park_job(tx, job, step)
            outcome = tx.jobs.steps.finish_step(step, StatusOutcome(status=tx.jobs.read_status(job.id)))
            tx.call_after_commit(self.released)
        return outcome


def _close_job(tx: Transaction, step: CloseStep) -> None:
    if step.error in PASSING:
        # After a provider's outage, the run of a schedule is skipped, which does not count as a failure.
        job, attempt = tx.jobs.get(step.job_id), tx.jobs.steps.find_last_attempt(step.job_id, StepState.FAILED)
        tx.jobs.steps.interrupt_others(step)
        if skip_run(tx, job, Wait(reason=WaitReason.PROVIDER), attempt):
            return
    if step.status is JobStatus.FAILED and tx.jobs.read(step.job_id).stop_requested:
        # A stopped job's workflow retries no step, so the job ends as cancelled, whatever the last attempt raised.
        step = step.model_copy(update={"status": JobStatus.CANCELLED, "error": ""})
    reason = cancel_reason(tx, step) if step.status is JobStatus.CANCELLED else ""
    details = (
        row.detail for row in reversed(tx.jobs.steps.list_attempts_of_job(step.job_id)) if row.error == step.error
    )
    tx.jobs.steps.interrupt_others(step)
    tx.jobs.close_job(step.job_id, JobEnding(status=step.status, error=step.error, reason=reason or next(details, "")))


def cancel_reason(tx: Transaction, step: CloseStep) -> str:
    """Return the reason of a cancellation; empty if the user of the job stopped the job."""
    job = tx.jobs.read(step.job_id)
    if job.merged_into is not None:
        return INTERRUPTED
    return job.reason if job.stop_requested else f"{ENDED_IN_TEMPORAL}cancelled by a person"


def _park_job(tx: Transaction, job: Job, step: ParkStep) -> None:
    waits = tx.jobs.steps.list_waits(job.id, step.steps)
    reason = next((wait.reason for wait in waits if wait.reason is not WaitReason.PERSON), WaitReason.PERSON)
    wake_at = min((wait.wake_at for wait in waits if wait.wake_at is not None), default=None)
    wait = Wait(reason=reason, wake_at=wake_at)
    if reason is not WaitReason.PERSON:
        if skip_run(tx, job, wait, tx.jobs.steps.find_last_attempt(job.id, StepState.WAITING)):
            return
        if _needs_wait_notice(tx, job):
            notice = new_notice_job(job, f"{job.kind}-{ULID()}", waiting_notice(wait, tx.now), tx.now)
            notice.inbox_id = None  # A notice about the wait does not answer the message, which still needs a reply.
            tx.jobs.add(notice)
            tx.jobs.update_job(job.id, told_to_wait=True)
    tx.jobs.park_job(job.id, wait)


def _needs_wait_notice(tx: Transaction, job: Job) -> bool:
    """Return whether to notify the user of the job's wait: one notice covers all waiting jobs of a lane (queue).

    See docs/decisions.md: retry.
    """
    if job.inbox_id is None or job.told_to_wait or job.what_if:
        return False
    lane = tx.jobs.delegations.find_lane(job)
    if lane is None:
        return True
    tasks = (
        task
        for task in tx.jobs.delegations.list_open_tasks(job.address, None)
        if tx.jobs.delegations.find_lane(task) == lane
    )
    return not (tx.jobs.has_wait_notice(LaneKey(lane)) or any(task.told_to_wait for task in tasks))
