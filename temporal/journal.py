"""The journal of steps: an interceptor that writes a row per step, reuses finished steps, and decides on retries."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar, get_type_hints

import structlog
from pydantic import BaseModel
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from maestro.domain.errors import JobEnded, LaneTaken, MaestroError, Quarantined, StepTaken, Stopped, Suspension
from maestro.domain.jobs.job import Job, JobStatus, StepGroup, StepRef, Wait
from maestro.domain.jobs.steps import AFTER_A_STOP, AFTER_THE_END, RetryRules, StepKind, step_kind, wait_before_retry
from maestro.domain.llm.calls import LLMFailure
from maestro.store.jobs.steps import UNKNOWN, OwnAttempt, TemporalAttempt, own_attempt_at, use_attempt
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from temporal.attempts import UNEXPECTED, Observe, RunningSteps, StepFailure, run_heartbeats, time_attempt

log = structlog.get_logger(__name__)

MOST_FAILURES = 30
"""The failed attempts at one step, in all runs, after which a job fails even if a provider might recover."""
Activity = Callable[..., Any]
Result = TypeVar("Result")
Outcome = TypeVar("Outcome", bound=BaseModel)
Payload = TypeVar("Payload", bound=BaseModel)
Step = TypeVar("Step", bound=StepRef)
UNWANTED = (Stopped, JobEnded, LaneTaken, StepTaken)
"""Errors of an attempt that must not run: the job ended or was stopped, or another attempt or job runs."""


class StepJournal(Interceptor):
    """The Temporal interceptor that journals every activity; an activity for several steps journals each of them."""

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal
        self._under_way = RunningSteps()
        self._wrapped: dict[Activity, Activity] = {}

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Return the SDK's next interceptor, wrapped so that its activity is journaled."""
        return _JournaledActivity(next, self)

    def wrap_activity(self, function: Activity) -> Activity:
        """Return an activity wrapped by the journal; an activity without a result to store is only timed."""
        wrapped = self._wrapped.get(function)
        if wrapped is None:  # Each activity is wrapped only once, because reading type hints is slow.
            wrapped = self._wrapped[function] = self._wrap_function(function)
        return wrapped

    def _wrap_function(self, function: Activity) -> Activity:
        hints = get_type_hints(function)
        result, (payload, *_) = hints.pop("return"), hints.values()
        keeps = issubclass(payload, StepRef) and inspect.isclass(result) and issubclass(result, BaseModel)
        is_async, is_group = inspect.iscoroutinefunction(function), issubclass(payload, StepGroup)
        if is_async:
            step = function if is_group else functools.partial(self._journal.run_async_step, function)

            async def attempt(ref: StepRef) -> BaseModel:
                return await self._under_way.run_once(ref, functools.partial(step, ref))

            return attempt
        if is_group:
            return function
        return functools.partial(self._journal.run_store_step if keeps else self._journal.run_timed, function)


class Journal:
    """Writes the rows before and after an attempt at a step (docs/adr/0036-steps-run-in-groups.md).

    A step that only writes to the store begins and ends in one transaction. Any other step is recorded before it calls
    a model, a tool or a platform. If a job is older than this process, all its steps are recorded first: the job may
    have ended the previous process, and its crashes are counted by recorded attempts.
    """

    def __init__(
        self,
        store: Store,
        rules: Callable[[], RetryRules],
        tried: Callable[[], TemporalAttempt] = lambda: UNKNOWN,
        observe: Observe = lambda *_: None,
    ) -> None:
        """``tried`` returns the number of Temporal's current attempt; ``observe`` receives each attempt's outcome."""
        self._store = store
        self._rules = rules
        self._tried = tried
        self._observe = observe
        self._since = store.now
        self._unwritten: dict[StepRef, tuple[OwnAttempt, str]] = {}

    def run_together(self, job_id: str, work: Callable[[], Result]) -> Result:
        """Run ``work``, several steps that only write to the store, in one transaction; return its result.

        If a step fails, the transaction is rolled back and the steps run one by one, so that the failed step is
        recorded. The steps of a job that is older than this process always run one by one.
        """
        try:
            return self._store.widen_scope(functools.partial(self._run_in_one, job_id, work))
        # A step that failed here fails again when the steps run one by one, and is journaled then.
        except Exception as error:  # noqa: BLE001 - see above
            log.info("steps.one_by_one", job=job_id, error=type(error).__name__)
        return work()

    def _run_in_one(self, job_id: str, work: Callable[[], Result]) -> Result:
        with self._store.begin(job=job_id) as tx:
            self._start_new_job(tx, job_id)
            return work()

    def run_store_step(self, function: Callable[[Step], Outcome], ref: Step) -> Outcome:
        """Run a step that only writes to the store; return its result, or the stored one of a finished step.

        Inside ``run_together``, the step joins the open transaction, and its exceptions pass unchanged.
        """
        with time_attempt(function.__name__, self._observe), ExitStack() as scope:
            if self._store.is_writing:
                return self._prepare_step(function, ref, scope)()
            try:
                return self._run_alone(function, ref, scope)
            # The row stores the error; the history gets only the error's type and a fixed sentence
            # (docs/invariants.md: by reference).
            except Exception as error:  # noqa: BLE001 - see above
                raise self.record_failure(ref, error) from None

    async def run_async_step(self, function: Callable[[Step], Awaitable[Outcome]], ref: Step) -> Outcome:
        """Run a step that acts outside of the store; return its result, or the stored one of a finished step."""
        async with self.journal_attempt(
            ref, function.__name__, functools.partial(self.begin_attempt, ref, function.__name__)
        ) as held:
            return await function(ref) if held is None else result_type(function).model_validate_json(held)

    @asynccontextmanager
    async def journal_attempt(
        self, ref: StepRef, name: str, begin: OwnAttempt | Callable[[], str | OwnAttempt]
    ) -> AsyncIterator[str | None]:
        """Record the ``with`` block as an attempt: ``begin`` is the attempt, or a function that begins the attempt."""
        with time_attempt(name, self._observe), ExitStack() as scope:
            try:
                own = begin if isinstance(begin, OwnAttempt) else await asyncio.to_thread(begin)
                if isinstance(own, OwnAttempt):
                    scope.enter_context(use_attempt(own))
                yield own if isinstance(own, str) else None
            # The row stores the error, the history only the error's type (docs/invariants.md: by reference).
            except Exception as error:  # noqa: BLE001 - see above
                raise await asyncio.to_thread(self.record_failure, ref, error) from None

    def record_next_attempt(self, ref: StepRef, name: str) -> None:
        """Record in the open transaction the attempt that the next activity makes; do nothing without a transaction."""
        if not self._store.is_writing:
            return
        with self._store.begin(job=ref.job_id) as tx:
            past = tx.jobs.steps.read_history(ref, TemporalAttempt(self._tried().workflow_run, 1))
            if not past.attempts:
                tx.jobs.steps.begin_attempt(ref, name, tx.jobs.read(ref.job_id).run, past)

    def adopt_recorded_attempt(self, tx: Transaction, ref: StepRef) -> OwnAttempt | None:
        """Return the attempt that ``record_next_attempt`` recorded; None if ``begin_attempt`` has to be called."""
        number = tx.jobs.steps.read_history(ref, self._tried()).begun_ahead_number
        if number is None or ref in self._unwritten:
            return None
        job = tx.jobs.read(ref.job_id)
        return None if job.status is not JobStatus.RUNNING or job.stop_requested else OwnAttempt(ref, number)

    def begin_attempt(self, ref: StepRef, name: str, *, recorded: bool = True) -> str | OwnAttempt:
        """Begin an attempt at a step and return it; for a finished step, return the stored result instead.

        Raises ``JobEnded`` or ``Stopped`` when the step must not act any more, and ``Quarantined`` when the process
        died in this step too often (docs/decisions.md: retry). Raises ``LaneTaken`` while another job of the lane runs,
        and ``StepTaken`` when Temporal has given the step to another process, or the job to another run.
        """
        tried = self._tried()
        if not recorded:  # Temporal's attempt number then counts another step or workflow tasks
            tried = TemporalAttempt(tried.workflow_run)
        with self._store.begin(job=ref.job_id) as tx:
            job = tx.jobs.read(ref.job_id)
            self._write_late_failure(tx, ref)
            past = tx.jobs.steps.read_history(ref, tried)
            if past.result is not None and step_kind(ref.step) is StepKind.PARK:
                return past.result  # A parked job may already wait for its next run.
            if tx.jobs.steps.is_of_earlier_run(ref.job_id, job.run, tried.workflow_run):
                raise StepTaken(f"job {ref.job_id} continues in run {job.run}")
            # After a claim, another job of the lane may resume at an earlier position. Of two such jobs, the one that
            # begins first runs (docs/invariants.md: lanes).
            if job.status is JobStatus.PENDING and not tx.jobs.mark_started(ref.job_id):
                raise LaneTaken(f"another job of the lane of {ref.job_id} runs")
            if past.result is not None:
                return past.result
            if past.is_overtaken:
                raise StepTaken(f"a newer attempt at step {ref.step} of job {ref.job_id} has begun")
            _require_open(job, ref)
            crashes = past.count_crashes(job.run)
            given_up = crashes >= self._rules().crashes
            attempt = tx.jobs.steps.begin_attempt(ref, name, job.run, past, recorded=recorded or given_up)
        if given_up:
            raise Quarantined(f"the process died {crashes} times in step {ref.step}")
        return attempt

    def _write_late_failure(self, tx: Transaction, ref: StepRef) -> None:
        """Write the failure of an earlier attempt that could not be written when that attempt ended."""
        if ref in self._unwritten:
            own, problem = self._unwritten[ref]
            with use_attempt(own):
                tx.jobs.steps.fail_attempt(ref, problem, UNEXPECTED)
            tx.call_after_commit(lambda: self._forget_late_failure(ref))

    def _forget_late_failure(self, ref: StepRef) -> None:
        self._unwritten.pop(ref, None)

    def record_failure(self, ref: StepRef, error: Exception) -> StepFailure:
        """Record why an attempt failed or has to wait, and return the failure for Temporal.

        After the last failed attempt, the job may wait, for example for a provider, instead of failing
        (docs/decisions.md: retry). Raises ``StoreBusy`` when the failure cannot be written. The next attempt writes it,
        so that it does not count as a crash.
        """
        own = own_attempt_at(ref)
        if own is not None:
            self._unwritten[ref] = own, type(error).__name__
        failure = self._store.widen_scope(functools.partial(self._write_failure, ref, error))
        self._forget_late_failure(ref)
        return failure

    def _write_failure(self, ref: StepRef, error: Exception) -> StepFailure:
        with self._store.begin(job=ref.job_id) as tx:
            past = tx.jobs.steps.read_history(ref)
            failures = past.count_failures(tx.jobs.read(ref.job_id).run) + 1
            again_in = wait_before_retry(error, failures, self._rules())
            waits = error if isinstance(error, Suspension) else None
            if again_in is None and isinstance(error, LLMFailure) and past.count_failures() + 1 < MOST_FAILURES:
                waits = waits or error.instead
            if waits is not None:
                wait = Wait(reason=waits.reason, wake_at=waits.wake_at)
                tx.jobs.steps.suspend_attempt(ref, type(waits).__name__, error_detail(waits), wait)
            # After a newer attempt has begun, this attempt must not write to the row of the step.
            elif not isinstance(error, StepTaken) and tx.jobs.steps.fail_attempt(
                ref, type(error).__name__, error_detail(error)
            ):
                tx.jobs.update_job(ref.job_id, attempts=failures)
        _log_failure(ref, waits or error, again_in)
        return StepFailure(waits or error, None if waits is not None else again_in, ref.step)

    def _run_alone(self, function: Callable[[Step], Outcome], ref: Step, scope: ExitStack) -> Outcome:
        remaining = self._store.widen_scope(functools.partial(self._begin_or_run, function, ref, scope))
        return self._store.widen_scope(remaining)

    def _begin_or_run(self, function: Callable[[Step], Outcome], ref: Step, scope: ExitStack) -> Callable[[], Outcome]:
        """Commit the beginning of an attempt or, for a new job, the whole attempt; return what gives its result."""
        stopped: Suspension | Quarantined | None = None
        with self._store.begin(job=ref.job_id) as tx:
            try:
                work = self._prepare_step(function, ref, scope, recorded=not self._is_new_job(tx, ref.job_id))
                own = own_attempt_at(ref)
                if own is None or not own.recorded:
                    outcome = work()
                    return lambda: outcome
            except (Suspension, Quarantined) as error:  # Raised after the commit, to keep the rows.
                stopped = error
        if stopped is not None:
            raise stopped
        return work

    def _prepare_step(
        self, function: Callable[[Step], Outcome], ref: Step, scope: ExitStack, *, recorded: bool = False
    ) -> Callable[[], Outcome]:
        """Begin an attempt; return a function that does the step or reads its result. ``scope`` ends the attempt."""
        begun = self.begin_attempt(ref, function.__name__, recorded=recorded)
        if isinstance(begun, str):
            return functools.partial(result_type(function).model_validate_json, begun)
        scope.enter_context(use_attempt(begun))
        return functools.partial(function, ref)

    def run_timed(self, function: Callable[[Payload], Result], payload: Payload) -> Result:
        """Run an activity that has no row in ``job_steps``, and report its duration."""
        with time_attempt(function.__name__, self._observe):
            return function(payload)

    def _start_new_job(self, tx: Transaction, job_id: str) -> None:
        """Mark a pending job as running if its lane is free, and cache its row.

        Raises ``_OlderJobError`` for a job older than this process: its first step then decides whether the job may
        run.
        """
        begun = tx.jobs.mark_started(job_id)
        if begun is not None and begun.is_new:
            tx.jobs.steps.cache_attempts(job_id, {})
        if begun is not None and not begun.has_merged:
            tx.jobs.merged.cache_unmerged(job_id)
        if not self._is_new_job(tx, job_id):
            raise _OlderJobError

    def _is_new_job(self, tx: Transaction, job_id: str) -> bool:
        return tx.jobs.read(job_id).created_at >= self._since


def temporal_attempt() -> TemporalAttempt:
    """Return Temporal's run and attempt number; the number is 0 for a local step, whose count may start again."""
    info = activity.info()
    return TemporalAttempt(info.workflow_run_id or "", 0 if info.is_local else info.attempt)


@functools.cache
def result_type(function: Callable[..., Any]) -> type[Any]:
    """Return the class of a step's result."""
    result: type[Any] = get_type_hints(function)["return"]
    return result


def _require_open(job: Job, ref: StepRef) -> None:
    """Raise ``JobEnded`` or ``Stopped`` if the job has ended or was stopped, and this step must not run after that."""
    if job.status.ended and step_kind(ref.step) not in AFTER_THE_END:
        raise JobEnded(f"job {ref.job_id} is {job.status}")
    if job.stop_requested and step_kind(ref.step) not in AFTER_A_STOP:
        raise Stopped(f"a person stopped job {ref.job_id}")


def _log_failure(ref: StepRef, error: Exception, again_in: timedelta | None) -> None:
    """Log one line about an attempt that did not succeed; a bug in Maestro is logged with its traceback."""
    fields = {"job": ref.job_id, "step": ref.step, "error": type(error).__name__, "reason": error_detail(error)}
    if isinstance(error, Suspension):
        log.info("step.waits", until=error.wake_at and error.wake_at.isoformat(), **fields)
    elif isinstance(error, UNWANTED):
        log.info("step.unwanted", **fields)
    else:
        seconds = again_in.total_seconds() if again_in is not None else None
        bug = None if isinstance(error, MaestroError) else error
        log.warning("step.failed", again_in=seconds, **fields, exc_info=bug)


def error_detail(error: Exception) -> str:
    """Return the error text for operators; of an unexpected error only the class, because its text may quote users."""
    return str(error)[:500] if isinstance(error, MaestroError) else UNEXPECTED


class _OlderJobError(Exception):
    """Raised for a job older than this process: the previous process may have died in one of the job's steps."""


class _JournaledActivity(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, steps: StepJournal) -> None:
        super().__init__(following)
        self._steps = steps

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        input.fn = self._steps.wrap_activity(input.fn)
        async with run_heartbeats():
            return await super().execute_activity(input)
