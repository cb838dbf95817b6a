"""Attempts at steps: heartbeats, durations, timeouts that grow with the load, and joining a running attempt."""

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError

from maestro.domain.jobs.job import StepRef

BEATS_PER_TIMEOUT = 3

LOADAVG = Path("/proc/loadavg")
SMOOTHING_SECONDS = 10.0
"""The time constant of the smoothing: after this time, a change of the load counts for about two thirds."""
FREE_PER_CORE = 2.0
"""The number of running or waiting threads per core above which timeouts grow."""
LARGEST_FACTOR = 6.0

Observe = Callable[[str, str, float], None]
"""A function that receives the name of a step's activity, the outcome of an attempt, and the attempt's seconds."""

DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
UNWANTED = frozenset({"Stopped", "JobEnded", "LaneTaken"})
"""Errors of steps that must not run any more, or not yet."""


@asynccontextmanager
async def heartbeats() -> AsyncIterator[None]:
    """Send heartbeats while the block of an activity runs; the replies deliver a cancellation to the activity."""
    timeout = activity.info().heartbeat_timeout
    beating = asyncio.create_task(_send_heartbeats(timeout.total_seconds() / BEATS_PER_TIMEOUT)) if timeout else None
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

    def lengthened(self, timeout: timedelta) -> timedelta:
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
def attempt_timer(name: str, observe: Observe) -> Iterator[None]:
    """Report the duration and the outcome of the block, however it ends; ``name`` is that of the step's activity."""
    began = time.perf_counter()
    outcome = DONE
    try:
        yield
    # Every end of an attempt is observed, a cancellation included; the exception is re-raised unchanged.
    except BaseException as error:
        outcome = outcome_of(error)
        raise
    finally:
        observe(name, outcome, time.perf_counter() - began)


def outcome_of(error: BaseException | None) -> str:
    """Return how an attempt ended; a stop or an end of the job counts as ``cancelled``, not as a failure."""
    if error is None:
        return DONE
    unwanted = isinstance(error, ApplicationError) and error.type in UNWANTED
    return CANCELLED if unwanted or isinstance(error, asyncio.CancelledError | CancelledError) else FAILED


class RunningSteps:
    """The running steps of this process; no step runs twice at the same time.

    Temporal repeats a step whose heartbeats do not arrive. During a stall of this process or an outage of Temporal the
    step may still run, and a second run would pay for the same answer twice.
    """

    def __init__(self) -> None:
        self._steps: dict[StepRef, asyncio.Task[BaseModel]] = {}

    async def join(self, ref: StepRef, act: Callable[[], Coroutine[Any, Any, BaseModel]]) -> BaseModel:
        """Return the step's result; a step that already runs is joined instead of started again.

        Only a stop or a shutdown ends the step. If Temporal gave up this attempt, the step goes on, and the next
        attempt joins it.
        """
        step = self._steps.get(ref)
        if step is None:
            step = self._steps[ref] = asyncio.create_task(act())
            step.add_done_callback(lambda ended: self._forget(ref, ended))
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # For any other reason, Temporal gave up this attempt only, for example after missing heartbeats.
            details = activity.cancellation_details()
            if details is None or details.cancel_requested or details.worker_shutdown:
                step.cancel()
                await asyncio.wait([step])
            raise

    def _forget(self, ref: StepRef, ended: "asyncio.Task[BaseModel]") -> None:
        del self._steps[ref]
        if not ended.cancelled():
            ended.exception()  # asyncio warns about an exception that is never read; the row of the step has the error
