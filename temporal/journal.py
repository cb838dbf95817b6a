"""Every step leaves a row, finds itself done, and says when it may be tried again: one interceptor for all steps."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, get_type_hints

import structlog
from pydantic import BaseModel
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from maestro.domain.errors import JobEnded, LaneTaken, MaestroError, Quarantined, StepTaken, Stopped, Suspension
from maestro.domain.jobs.job import JobStatus, StepRef, Wait
from maestro.domain.jobs.retries import RetryRules, next_attempt_in
from maestro.domain.llm.errors import LLMFailure
from maestro.store.jobs import Standing
from maestro.store.steps import UNKNOWN, OwnAttempt, TemporalAttempt, acting_for, own_attempt
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from temporal.failures import UNEXPECTED, StepFailure
from temporal.under_way import UnderWay

log = structlog.get_logger(__name__)

DETAIL_CHARS = 500
MOST_FAILURES = 30
"""Failed attempts at a step, in all runs of its job, after which the job fails though a provider may recover."""
Activity = Callable[..., Any]
UNWANTED = (Stopped, JobEnded, LaneTaken, StepTaken)
"""What says that nobody wants the attempt, any more or yet."""
AFTER_A_STOP = ("deliver", "notice", "close", "park")
"""Steps that still run after a person said stop: what is being sent is sent, and the job is closed."""
AFTER_THE_END = ("close", "park")
"""Steps that find out by themselves that somebody else ended the job."""


class StepJournal(Interceptor):
    """Wraps every activity that takes a ``StepRef`` (design invariants 3, 4 and 6)."""

    def __init__(self, store: Store, rules: Callable[[], RetryRules]) -> None:
        self._journal = Journal(store, rules)
        self._under_way = UnderWay()
        self._around: dict[Activity, Activity] = {}

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Put the journal in front of the activity."""
        return _Journaled(next, self)

    def around(self, function: Activity) -> Activity:
        """Return the activity with the journal around it, or as it is when it returns nothing to keep."""
        wrapped = self._around.get(function)
        if wrapped is None:  # an activity is met with every message; its type hints never change
            wrapped = self._around[function] = self._wrap(function)
        return wrapped

    def _wrap(self, function: Activity) -> Activity:
        result = get_type_hints(function).get("return")
        if not (inspect.isclass(result) and issubclass(result, BaseModel)):
            return function
        if inspect.iscoroutinefunction(function):
            return _joined(_journaled_async(function, self._journal, result), self._under_way)
        return _journaled(function, self._journal, result)


class Journal:
    """What is written before and after an attempt; each method is one transaction."""

    def __init__(self, store: Store, rules: Callable[[], RetryRules]) -> None:
        self._store = store
        self._rules = rules
        self._unwritten: dict[StepRef, tuple[OwnAttempt, str]] = {}

    def begin(self, ref: StepRef, name: str, tried: TemporalAttempt = UNKNOWN) -> str | OwnAttempt:
        """Return what the finished step returned, or note that an attempt begins and return it.

        Raises ``JobEnded`` and ``Stopped`` when the step must not act any more, ``Quarantined`` when its process died
        in it too often (decision 9). Raises ``LaneTaken`` while another job of its lane runs, and ``StepTaken`` when
        Temporal has given the step to another process, or the job to another run, since it gave it to this one.
        """
        with self._store.begin() as tx:
            job = tx.jobs.standing(ref.job_id)
            if ref in self._unwritten:
                own, problem = self._unwritten[ref]
                with acting_for(own):
                    tx.steps.failed(ref, problem, UNEXPECTED)
            past = tx.steps.past(ref, tried)
            if past.result is not None and ref.step.startswith("park"):
                return past.result  # the job may wait for its next run already
            if tx.steps.is_of_earlier_run(ref.job_id, job.run, tried.workflow_run):
                raise StepTaken(f"job {ref.job_id} goes on in run {job.run}")
            if job.status is JobStatus.PENDING:
                _take_lane(tx, ref.job_id, job)
            if past.result is not None:
                return past.result
            if past.overtaken:
                raise StepTaken(f"a newer attempt at step {ref.step} of job {ref.job_id} has begun")
            _refuse(job, ref)
            attempt = OwnAttempt(ref, tx.steps.start(ref, name, job.run, past))
            crashes = past.crashes(job.run)
        self._unwritten.pop(ref, None)
        if crashes >= self._rules().crashes:
            raise Quarantined(f"the process died {crashes} times in step {ref.step}")
        return attempt

    def failed(self, ref: StepRef, error: Exception) -> StepFailure:
        """Note why the attempt failed, or that it has to wait, and return what Temporal is told.

        What has failed often enough waits where there is something to wait for instead (decision 9). Raises
        ``StoreBusy`` when this cannot be written; the next attempt writes it, so that it does not count as a crash.
        """
        own = own_attempt()
        if own is not None:
            self._unwritten[ref] = own, type(error).__name__
        with self._store.begin() as tx:
            past = tx.steps.past(ref)
            failures = past.failures(tx.jobs.standing(ref.job_id).run) + 1
            again_in = next_attempt_in(error, failures, self._rules())
            waits = error if isinstance(error, Suspension) else None
            if again_in is None and isinstance(error, LLMFailure) and past.failures() + 1 < MOST_FAILURES:
                waits = waits or error.instead
            if waits is not None:
                _suspend(tx, ref, waits)
            # Who took the step has the row: an attempt that came too late leaves no trace.
            elif not isinstance(error, StepTaken) and tx.steps.failed(ref, type(error).__name__, _detail(error)):
                tx.jobs.update(ref.job_id, attempts=failures)
        self._unwritten.pop(ref, None)
        _tell(ref, waits or error, again_in)
        return StepFailure(waits or error, None if waits is not None else again_in)


def _suspend(tx: Transaction, ref: StepRef, waits: Suspension) -> None:
    wait = Wait(reason=waits.reason, wake_at=waits.wake_at)
    tx.steps.suspended(ref, type(waits).__name__, _detail(waits), wait)


def _take_lane(tx: Transaction, job_id: str, job: Standing) -> None:
    """Let a job run whose workflow begins.

    Between its claim and here another one may have come back from a wait into an earlier turn, or the other way round:
    who begins first runs (design invariant 7).
    """
    if job.lane is not None and tx.jobs.running_in(job.lane):
        raise LaneTaken(f"another job of the lane of {job_id} runs")
    tx.jobs.started(job_id)


def _refuse(job: Standing, ref: StepRef) -> None:
    """Raise ``JobEnded`` or ``Stopped`` when this step of the job must not act any more."""
    if job.status.ended and not ref.step.startswith(AFTER_THE_END):
        raise JobEnded(f"job {ref.job_id} is {job.status}")
    if job.stop_requested and not ref.step.startswith(AFTER_A_STOP):
        raise Stopped(f"a person stopped job {ref.job_id}")


def _tell(ref: StepRef, error: Exception, again_in: timedelta | None) -> None:
    """Write one line about an attempt that did not end well; a fault in our code comes with its traceback."""
    facts = {"job": ref.job_id, "step": ref.step, "error": type(error).__name__, "reason": _detail(error)}
    if isinstance(error, Suspension):
        log.info("step.waits", until=error.wake_at and error.wake_at.isoformat(), **facts)
    elif isinstance(error, UNWANTED):
        log.info("step.unwanted", **facts)
    else:
        seconds = again_in.total_seconds() if again_in is not None else None
        fault = None if isinstance(error, MaestroError) else error
        log.warning("step.failed", again_in=seconds, **facts, exc_info=fault)


def _detail(error: Exception) -> str:
    """Return what operators read; an unexpected error may quote what people wrote, so only its class is told."""
    return str(error)[:DETAIL_CHARS] if isinstance(error, MaestroError) else UNEXPECTED


class _Journaled(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, steps: StepJournal) -> None:
        super().__init__(following)
        self._steps = steps

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        if isinstance(input.args[0], StepRef):
            input.fn = self._steps.around(input.fn)
        return await super().execute_activity(input)


def _journaled(function: Callable[[StepRef], BaseModel], journal: Journal, result: type[BaseModel]) -> Activity:
    @functools.wraps(function)
    def attempt(ref: StepRef) -> BaseModel:
        with ExitStack() as scope:
            try:
                begun = journal.begin(ref, activity.info().activity_type, _tried())
                if isinstance(begun, str):
                    return result.model_validate_json(begun)
                scope.enter_context(acting_for(begun))
                return function(ref)
            # Design invariant 1: whatever a step raises, its row says so; the history gets a type and a fixed sentence.
            except Exception as error:  # noqa: BLE001 - see above
                raise journal.failed(ref, error) from None

    return attempt


def _journaled_async(
    function: Callable[[StepRef], Awaitable[BaseModel]], journal: Journal, result: type[BaseModel]
) -> Activity:
    @functools.wraps(function)
    async def attempt(ref: StepRef) -> BaseModel:
        with ExitStack() as scope:
            try:
                begun = await asyncio.to_thread(journal.begin, ref, activity.info().activity_type, _tried())
                if isinstance(begun, str):
                    return result.model_validate_json(begun)
                scope.enter_context(acting_for(begun))
                return await function(ref)
            # The same sentence of the design as above.
            except Exception as error:  # noqa: BLE001 - see above
                raise await asyncio.to_thread(journal.failed, ref, error) from None

    return attempt


def _tried() -> TemporalAttempt:
    """Return which attempt of Temporal's this is; a local step's number begins anew where its task is repeated."""
    info = activity.info()
    return TemporalAttempt(info.workflow_run_id or "", 0 if info.is_local else info.attempt)


def _joined(function: Callable[[StepRef], Coroutine[Any, Any, BaseModel]], under_way: UnderWay) -> Activity:
    @functools.wraps(function)
    async def attempt(ref: StepRef) -> BaseModel:
        return await under_way.join(ref, functools.partial(function, ref))

    return attempt
