"""The failure path; the reason is kept, the person hears once, the lane goes on."""

from collections.abc import Callable

from temporalio import activity

from activities.routing import Typing
from activities.schedules import ScheduleRules, pause_failing, skip_run
from maestro.domain.errors import WaitReason
from maestro.domain.jobs.busy import INTERRUPTED
from maestro.domain.jobs.flow import CloseOutcome, CloseStep
from maestro.domain.jobs.job import IN_TEMPORAL, Ending, JobStatus, StepState, Wait
from maestro.domain.llm.errors import PASSING
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class ClosingActivities:
    """Ends jobs that did not end with an answer.

    See docs/invariants.md: no silent end; docs/decisions.md: failure notice.
    """

    def __init__(
        self, store: Store, typing: Typing, released: Callable[[], None], rules: Callable[[], ScheduleRules]
    ) -> None:
        self._store = store
        self._typing = typing
        self._released = released
        self._rules = rules

    @activity.defn(no_thread_cancel_exception=True)
    def close_job(self, step: CloseStep) -> CloseOutcome:
        """End the job with its reason and free its places; a job that was resumed meanwhile is left alone."""
        self._typing.stop(step.job_id)
        with self._store.begin() as tx:
            if tx.jobs.get(step.job_id).run == step.run:
                _close(tx, step)
                pause_failing(tx, step.job_id, self._rules().pause_after)
            outcome = tx.steps.done(step, CloseOutcome(status=tx.jobs.status(step.job_id)))
            tx.when_committed(self._released)
        return outcome


def _close(tx: Transaction, step: CloseStep) -> None:
    if step.error in PASSING and _is_skipped(tx, step):
        return
    if step.status is JobStatus.FAILED and tx.jobs.read(step.job_id).stop_requested:
        # Once its workflow was cancelled Temporal repeats no step, whatever the last attempt met with.
        step = step.model_copy(update={"status": JobStatus.CANCELLED, "error": ""})
    reason = _why_cancelled(tx, step) if step.status is JobStatus.CANCELLED else ""
    failed = (row.detail for row in reversed(tx.steps.of(step.job_id)) if row.error == step.error)
    tx.steps.interrupt_others(step)
    tx.close_job(step.job_id, Ending(status=step.status, error=step.error, reason=reason or next(failed, "")))


def _why_cancelled(tx: Transaction, step: CloseStep) -> str:
    """Return which operator cancelled the job, or that a newer message did; nothing where its own person stopped it."""
    job = tx.jobs.read(step.job_id)
    if job.merged_into is not None:
        return INTERRUPTED
    return job.reason if job.stop_requested else f"{IN_TEMPORAL}cancelled by a person"


def _is_skipped(tx: Transaction, step: CloseStep) -> bool:
    """Skip a run of a schedule that failed for an outage, and say whether it was one."""
    job, attempt = tx.jobs.get(step.job_id), tx.steps.last(step.job_id, StepState.FAILED)
    tx.steps.interrupt_others(step)
    return skip_run(tx, job, Wait(reason=WaitReason.PROVIDER), attempt)
