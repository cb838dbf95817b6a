"""Attempts at steps: heartbeats, durations, timeouts, and failures in the form that Temporal's histories contain.

A failure contains only its type and a fixed sentence. Chained exceptions, stack traces and input values of validation
errors could contain users' messages (docs/invariants.md: by reference).
"""

import asyncio
import logging
import math
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import structlog
from pydantic import BaseModel
from temporalio import activity
from temporalio.api.failure.v1 import Failure
from temporalio.client import AsyncActivityCancelledError
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
    ChildWorkflowError,
    FailureError,
)
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from maestro.domain.errors import MaestroError, Suspension
from maestro.domain.health import QueueSlots
from maestro.domain.jobs.job import StepRef

UNEXPECTED = "An unexpected error; the worker's log and the job's steps say more."
OF_THE_ENGINE: Mapping[str, str] = {
    "CancelledError": "Cancelled.",
    "TimeoutError": "A step did not end in its time, or its worker was lost.",
}
"""The fixed sentences of failures that Temporal itself raises, by class name."""

LOADAVG = Path("/proc/loadavg")
SMOOTHING_SECONDS = 10.0
"""The time constant with which the load is smoothed: after this time, about two thirds of a change are counted."""
FREE_PER_CORE = 2.0
"""The number of running or waiting threads per core above which timeouts grow."""
LARGEST_FACTOR = 6.0

log = structlog.get_logger(__name__)

Observe = Callable[[str, str, float], None]
"""A function that receives an activity's name, the outcome of one attempt, and the attempt's duration in seconds."""

NOTE_TIMEOUT = timedelta(seconds=2)
"""The longest time that a note for the next attempt may take."""

UNWANTED = frozenset({"Stopped", "JobEnded", "LaneTaken"})
"""Class names of errors that end an attempt because its step must not run any more, or not yet."""


class StepFailure(ApplicationError):
    """A step's failure as Temporal gets it; ``wait`` is the time until the next attempt, None if none follows."""

    def __init__(self, error: BaseException, wait: timedelta | None, step: str = "") -> None:
        super().__init__(
            error.public if isinstance(error, MaestroError) else UNEXPECTED,
            *([step] if step else []),
            type=type(error).__name__,
            non_retryable=wait is None,
            next_retry_delay=wait,
            # A step that waits has not failed: BENIGN keeps this error out of the SDK's error log and failure metrics.
            category=ApplicationErrorCategory.BENIGN
            if isinstance(error, Suspension)
            else ApplicationErrorCategory.UNSPECIFIED,
        )


class SafeFailureConverter(DefaultFailureConverter):
    """A failure converter that writes only types and fixed sentences into a history."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Write an exception as its type and a fixed sentence, without stack trace and inner causes."""
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
    """Return the fixed sentence for an error's class name; a general one if the name is unknown or ambiguous."""
    sentences = {error.public for error in _with_subclasses(MaestroError) if error.__name__ == kind}
    return sentences.pop() if len(sentences) == 1 else OF_THE_ENGINE.get(kind, UNEXPECTED)


def _with_subclasses(kind: type[MaestroError]) -> Iterator[type[MaestroError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)


class ExpectedEndFilter(logging.Filter):
    """A log filter that shortens the SDK's tracebacks of expected errors in steps to one line.

    Records about failed steps are dropped, because the journal of steps has logged them. A bug in Maestro keeps its
    traceback.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record, after removing the traceback of an expected error."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, StepFailure):
            return False
        if isinstance(error, MaestroError | CancelledError | asyncio.CancelledError):
            record.msg, record.args = f"{record.getMessage()}: {type(error).__name__}", ()
            record.exc_info = record.exc_text = None
        return True


class Heartbeats:
    """The heartbeats of one attempt; each carries the note for the next attempt (``HeartbeatNotes``)."""

    running: ClassVar[set["Heartbeats"]] = set()
    """Those of this process. An activity has several while a newer attempt waits for the run of an older one."""

    def __init__(self) -> None:
        info = activity.info()
        self.activity = (info.workflow_run_id, info.activity_id)
        self.task_token = info.task_token
        self.note: Sequence[Any] = info.heartbeat_details

    async def send_every(self, seconds: float) -> None:
        """Send heartbeats until cancelled; Temporal's replies deliver a cancellation of the activity."""
        while True:
            await asyncio.sleep(seconds)
            activity.heartbeat(*self.note)


_heartbeats: ContextVar[Heartbeats] = ContextVar("heartbeats")


@asynccontextmanager
async def run_heartbeats() -> AsyncIterator[None]:
    """Send heartbeats to Temporal while the block runs, if the activity has a heartbeat timeout."""
    timeout = activity.info().heartbeat_timeout
    if not timeout:
        yield
        return
    beats = Heartbeats()
    _heartbeats.set(beats)
    Heartbeats.running.add(beats)
    beating = asyncio.create_task(beats.send_every(timeout.total_seconds() / 3))
    try:
        yield
    finally:
        beating.cancel()
        Heartbeats.running.discard(beats)


class HeartbeatNotes:
    """The notes of an attempt for the next one, which Temporal keeps as the details of heartbeats."""

    async def leave(self, *note: str) -> None:
        """Leave a note, and return when Temporal has it; give up when Temporal does not answer in a moment."""
        own = _heartbeats.get(None)
        if own is None:
            return
        activity.heartbeat(*note)  # replaces an older heartbeat that the SDK still holds back
        for beats in [each for each in Heartbeats.running if each.activity == own.activity]:
            beats.note = note
            handle = activity.client().get_async_activity_handle(task_token=beats.task_token)
            try:
                await handle.heartbeat(*note, rpc_timeout=NOTE_TIMEOUT)
            except (RPCError, AsyncActivityCancelledError) as error:
                # Temporal knows only the newest attempt, and may be away.
                log.info("attempt.note_refused", activity=own.activity, error=type(error).__name__)

    def read(self) -> Sequence[str]:
        """Return the note of an earlier attempt; empty outside of an activity with heartbeats."""
        beats = _heartbeats.get(None)
        return tuple(beats.note) if beats is not None else ()


class LoadGauge:
    """A gauge of the machine's load: the smoothed number of threads per core that run or wait for a core.

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
        """Return the timeout lengthened for the load: unchanged on an idle machine, at most six times as long."""
        return timeout * min(max(self._runnable_now() / self._cores / FREE_PER_CORE, 1.0), LARGEST_FACTOR)

    def _runnable_now(self) -> float:
        """Return the smoothed number of threads that run or wait; the first call returns the last minute's average."""
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


class SlotKind(StrEnum):
    """The kind of a slot: a local activity runs inside a workflow task."""

    ACTIVITY = "activity"
    LOCAL = "local"


class SlotUsage:
    """The activities that run in this process, counted by queue."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, SlotKind], int] = {}
        self._used: Counter[tuple[str, SlotKind]] = Counter()

    def set_limit(self, queue: str, kind: SlotKind, limit: int) -> None:
        """Set how many activities of a queue may run at once; 0 after the end of its worker."""
        self._limits[queue, kind] = limit

    def add_running(self, queue: str, kind: SlotKind, count: int) -> None:
        """Count an activity that begins (1) or ends (-1); called on the event loop."""
        self._used[queue, kind] += count

    def list_slots(self) -> list[QueueSlots]:
        """Return the slots of each queue that this process has polled."""
        return [QueueSlots(*key, self._used[key], limit) for key, limit in sorted(self._limits.items())]


class SlotInterceptor(Interceptor):
    """The Temporal interceptor that counts the running activities of one queue."""

    def __init__(self, slots: SlotUsage, queue: str) -> None:
        self.slots = slots
        self.queue = queue

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Return the SDK's next interceptor, wrapped so that its activities are counted."""
        return _CountedActivity(next, self)


class _CountedActivity(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, counter: SlotInterceptor) -> None:
        super().__init__(following)
        self._counter = counter

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        kind = SlotKind.LOCAL if activity.info().is_local else SlotKind.ACTIVITY
        self._counter.slots.add_running(self._counter.queue, kind, 1)
        try:
            return await super().execute_activity(input)
        finally:
            self._counter.slots.add_running(self._counter.queue, kind, -1)


@contextmanager
def time_attempt(name: str, observe: Observe) -> Iterator[None]:
    """Report the block's duration and outcome under ``name`` to ``observe``, also when the block raises an error."""
    began = time.perf_counter()
    outcome = "done"
    try:
        yield
    # A cancellation is also reported, so all exceptions are caught here and raised again unchanged.
    except BaseException as error:
        outcome = attempt_outcome(error)
        raise
    finally:
        observe(name, outcome, time.perf_counter() - began)


def attempt_outcome(error: BaseException) -> str:
    """Return the outcome of a failed attempt: ``cancelled`` if its step must not run any more, else ``failed``."""
    unwanted = isinstance(error, ApplicationError) and error.type in UNWANTED
    return "cancelled" if unwanted or isinstance(error, asyncio.CancelledError | CancelledError) else "failed"


class RunningSteps:
    """The steps that run in this process; each step runs at most once at a time.

    Temporal repeats a step whose heartbeats do not arrive. After a stall of this process or an outage of Temporal, the
    first run may still be going on, and a second run would pay for the same answer twice.
    """

    def __init__(self) -> None:
        self._steps: dict[StepRef, asyncio.Task[BaseModel]] = {}

    async def run_once(self, ref: StepRef, work: Callable[[], Coroutine[Any, Any, BaseModel]]) -> BaseModel:
        """Run the step and return its result; if the step already runs, wait for that run.

        Only a stop of the job or a shutdown ends the step. If Temporal gives up an attempt, the step goes on, and the
        next attempt waits for it.
        """
        step = self._steps.get(ref)
        if step is None:
            step = self._steps[ref] = asyncio.create_task(work())
            step.add_done_callback(lambda ended: self._remove_task(ref, ended))
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # Otherwise Temporal gave up only this attempt, for example after missing heartbeats: the step goes on.
            details = activity.cancellation_details()
            if details is None or details.cancel_requested or details.worker_shutdown:
                step.cancel()
                await asyncio.wait([step])
            raise

    def _remove_task(self, ref: StepRef, ended: "asyncio.Task[BaseModel]") -> None:
        del self._steps[ref]
        if not ended.cancelled():
            ended.exception()  # Without this read, asyncio logs the error again.
