"""A job that cannot go on gives its place back and waits, without a workflow, until something wakes it."""

from collections.abc import Callable

from temporalio import activity
from ulid import ULID

from activities.routing import Typing
from activities.schedules import skip_run
from maestro.domain.errors import WaitReason
from maestro.domain.jobs.busy import INTERRUPTED
from maestro.domain.jobs.flow import ParkOutcome, ParkStep
from maestro.domain.jobs.job import Ending, Job, JobStatus, StepState, Wait, notice_of
from maestro.domain.jobs.notices import waiting_notice
from maestro.domain.messages import LaneKey
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class WaitingActivities:
    """Parks jobs; a run of a schedule is skipped if another comes first.

    See docs/invariants.md: lanes; docs/decisions.md: retry, questions.
    """

    def __init__(self, store: Store, typing: Typing, released: Callable[[], None]) -> None:
        self._store = store
        self._typing = typing
        self._released = released

    @activity.defn(no_thread_cancel_exception=True)
    def park_job(self, step: ParkStep) -> ParkOutcome:
        """Let the job wait for what its steps wait for; one that a person stopped meanwhile ends instead."""
        self._typing.stop(step.job_id)
        with self._store.begin() as tx:
            job = tx.jobs.get(step.job_id)
            if job.stop_requested:
                reason = INTERRUPTED if job.merged_into is not None else job.reason or "stopped by a person"
                tx.close_job(job.id, Ending(status=JobStatus.CANCELLED, error="Stopped", reason=reason))
            elif not job.status.ended:
                _park(tx, job, step)
            outcome = tx.steps.done(step, ParkOutcome(status=tx.jobs.status(job.id)))
            tx.when_committed(self._released)
        return outcome


def _park(tx: Transaction, job: Job, step: ParkStep) -> None:
    waits = tx.steps.waits(job.id, step.steps)
    reason = next((wait.reason for wait in waits if wait.reason is not WaitReason.PERSON), WaitReason.PERSON)
    soonest = min((wait.wake_at for wait in waits if wait.wake_at is not None), default=None)
    wait = Wait(reason=reason, wake_at=soonest)
    if reason is not WaitReason.PERSON:
        if skip_run(tx, job, wait, tx.steps.last(job.id, StepState.WAITING)):
            return
        if _is_news(tx, job):
            _tell(tx, job, wait)
    tx.jobs.park(job.id, wait)


def _tell(tx: Transaction, job: Job, wait: Wait) -> None:
    notice = notice_of(job, f"{job.kind}-{ULID()}", waiting_notice(wait, tx.now), tx.now)
    notice.inbox_id = None  # it answers nothing: who waits for the reply to a message goes on waiting
    tx.jobs.add(notice)
    tx.jobs.update(job.id, told_to_wait=True)


def _is_news(tx: Transaction, job: Job) -> bool:
    """Say whether the person does not know yet: one notice for all that wait in a channel.

    See docs/decisions.md: retry.
    """
    if job.inbox_id is None or job.told_to_wait or job.what_if:
        return False
    lane = tx.delegations.lane_of(job)
    if lane is None:
        return True
    tasks = (task for task in tx.delegations.open_in(job.address, None) if tx.delegations.lane_of(task) == lane)
    return not (tx.jobs.is_told_to_wait(LaneKey(lane)) or any(task.told_to_wait for task in tasks))
