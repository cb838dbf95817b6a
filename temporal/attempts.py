"""Attempts at steps: heartbeats, durations, timeouts that grow with the load, and failures as histories contain them.

A failure is a type and a fixed sentence: chained exceptions, stack traces and the input values in validation errors
would bring messages of users into the history (docs/invariants.md: by reference).
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio import activity
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
    ChildWorkflowError,
    FailureError,
)

from maestro.domain.errors import MaestroError, Suspension
from maestro.domain.jobs.job import StepRef

UNEXPECTED = "An unexpected error; the worker's log and the job's steps say more."
OF_THE_ENGINE: Mapping[str, str] = {
    "CancelledError": "Cancelled.",
    "TimeoutError": "A step did not end in its time, or its worker was lost.",
}
"""The fixed sentences of failures that Temporal itself raises, by class name."""

LOADAVG = Path("/proc/loadavg")
SMOOTHING_SECONDS = 10.0
"""The time constant of the smoothing: after this time, a change of the load counts for about two thirds."""
FREE_PER_CORE = 2.0
"""The number of running or waiting threads per core above which timeouts grow."""
LARGEST_FACTOR = 6.0

Observe = Callable[[str, str, float], None]
"""A function that receives the name of a step's activity, the outcome of an attempt, and the attempt's seconds."""

UNWANTED = frozenset({"Stopped", "JobEnded", "LaneTaken"})
"""Errors of steps that must not run any more, or not yet."""


class StepFailure(ApplicationError):
    """A failed ``step`` as Temporal sees it; ``wait`` is the time until the next attempt, None if there is none."""

    def __init__(self, error: BaseException, wait: timedelta | None, step: str = "") -> None:
        super().__init__(
            error.public if isinstance(error, MaestroError) else UNEXPECTED,
            *([step] if step else []),
            type=type(error).__name__,
            non_retryable=wait is None,
            next_retry_delay=wait,
            # A step that waits has not failed: BENIGN keeps it out of the SDK's error log and failure metrics.
            category=ApplicationErrorCategory.BENIGN
            if isinstance(error, Suspension)
            else ApplicationErrorCategory.UNSPECIFIED,
        )


class SafeFailureConverter(DefaultFailureConverter):
    """A failure converter that writes only types and fixed sentences into a history."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert an exception; one that came from the server is already converted, and passes unchanged."""
        super().to_failure(_safe_failure(exception), payload_converter, failure)
        while True:
            failure.stack_trace = ""
            if failure.HasField("application_failure_info"):
                failure.ClearField("cause")
            if not failure.HasField("cause"):
                return
            failure = failure.cause


def _safe_failure(exception: BaseException) -> BaseException:
    if isinstance(exception, StepFailure | ActivityError | ChildWorkflowError):
        return exception
    if isinstance(exception, FailureError) and exception.failure is not None:
        return exception
    if isinstance(exception, CancelledError):
        return CancelledError("Cancelled.")
    if isinstance(exception, MaestroError):
        return StepFailure(exception, timedelta(seconds=1) if exception.retryable else None)
    if isinstance(exception, ApplicationError):
        sentence = sentence_of_error(exception.type or "")
        return ApplicationError(sentence, type=exception.type, non_retryable=exception.non_retryable)
    return ApplicationError(UNEXPECTED, type=type(exception).__name__)


def sentence_of_error(kind: str) -> str:
    """Return the fixed sentence of a failure by its class name, if exactly one class of Maestro has that name."""
    sentences = {error.public for error in _with_subclasses(MaestroError) if error.__name__ == kind}
    return sentences.pop() if len(sentences) == 1 else OF_THE_ENGINE.get(kind, UNEXPECTED)


def _with_subclasses(kind: type[MaestroError]) -> Iterator[type[MaestroError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)


class ExpectedEndFilter(logging.Filter):
    """A log filter that shortens the SDK's tracebacks about expected ends of steps to one line.

    Records that only repeat a line of the journal are dropped. A bug in Maestro keeps its traceback.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record; the traceback of an expected error is removed from it."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, StepFailure):
            return False
        if isinstance(error, MaestroError | CancelledError | asyncio.CancelledError):
            record.msg, record.args = f"{record.getMessage()}: {type(error).__name__}", ()
            record.exc_info = record.exc_text = None
        return True


@asynccontextmanager
async def run_heartbeats() -> AsyncIterator[None]:
    """Send heartbeats while the block of an activity runs; the replies deliver a cancellation to the activity."""
    timeout = activity.info().heartbeat_timeout
    beating = asyncio.create_task(_send_heartbeats(timeout.total_seconds() / 3)) if timeout else None
    try:
        yield
    finally:
        if beating is not None:
            beating.cancel()


async def _send_heartbeats(seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        activity.heartbeat()


class LoadGauge:
    """Measures the machine's load: threads per core that run or wait for a core, smoothed.

    The load is read only when a timeout is requested. A machine without readable load counts as idle.
    """

    def __init__(
        self, read: Callable[[], str] = LOADAVG.read_text, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        self._cores = os.cpu_count() or 1
        self._read_at: float | None = None
        self._runnable = 0.0

    def lengthen_timeout(self, timeout: timedelta) -> timedelta:
        """Return a timeout lengthened for the load: unchanged on an idle machine, at most six times as long."""
        return timeout * min(max(self._runnable_now() / self._cores / FREE_PER_CORE, 1.0), LARGEST_FACTOR)

    def _runnable_now(self) -> float:
        """Return the smoothed number of threads that run or wait; it begins with the average of the last minute."""
        try:
            minute, _, _, threads, _ = self._read().split()
            last_minute, runnable = float(minute), float(threads.partition("/")[0])
        except (OSError, ValueError):  # not Linux
            return 0.0
        now = self._clock()
        if self._read_at is None:
            self._runnable = last_minute
        else:
            weight = math.exp((self._read_at - now) / SMOOTHING_SECONDS)
            self._runnable = self._runnable * weight + runnable * (1 - weight)
        self._read_at = now
        return self._runnable


@contextmanager
def time_attempt(name: str, observe: Observe) -> Iterator[None]:
    """Report the duration and the outcome of the block, however it ends; ``name`` is that of the step's activity."""
    began = time.perf_counter()
    outcome = "done"
    try:
        yield
    # Every end of an attempt is observed, a cancellation included; the exception is re-raised unchanged.
    except BaseException as error:
        outcome = attempt_outcome(error)
        raise
    finally:
        observe(name, outcome, time.perf_counter() - began)


def attempt_outcome(error: BaseException) -> str:
    """Return how an attempt failed; a stop or an end of the job counts as ``cancelled``, not as a failure."""
    unwanted = isinstance(error, ApplicationError) and error.type in UNWANTED
    return "cancelled" if unwanted or isinstance(error, asyncio.CancelledError | CancelledError) else "failed"


class RunningSteps:
    """The running steps of this process; no step runs twice at the same time.

    Temporal repeats a step whose heartbeats do not arrive. During a stall of this process or an outage of Temporal the
    step may still run, and a second run would pay for the same answer twice.
    """

    def __init__(self) -> None:
        self._steps: dict[StepRef, asyncio.Task[BaseModel]] = {}

    async def run_once(self, ref: StepRef, work: Callable[[], Coroutine[Any, Any, BaseModel]]) -> BaseModel:
        """Return the step's result; a step that already runs is joined instead of started again.

        Only a stop or a shutdown ends the step. If Temporal gave up this attempt, the step goes on, and the next
        attempt joins it.
        """
        step = self._steps.get(ref)
        if step is None:
            step = self._steps[ref] = asyncio.create_task(work())
            step.add_done_callback(lambda ended: self._remove_task(ref, ended))
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # For any other reason, Temporal gave up this attempt only, for example after missing heartbeats.
            details = activity.cancellation_details()
            if details is None or details.cancel_requested or details.worker_shutdown:
                step.cancel()
                await asyncio.wait([step])
            raise

    def _remove_task(self, ref: StepRef, ended: "asyncio.Task[BaseModel]") -> None:
        del self._steps[ref]
        if not ended.cancelled():
            ended.exception()  # Reading the exception keeps asyncio from warning; the row of the step has the error.
