"""Notices a dead process soon, by heartbeats, and a slow one not at all, by timeouts that grow with the load."""

import asyncio
import math
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

BEATS_PER_TIMEOUT = 3

LOADAVG = Path("/proc/loadavg")
SMOOTHING_SECONDS = 10.0
"""After so long a change of the load counts for two thirds."""
FREE_PER_CORE = 2.0
"""Threads that may run or wait for each core before timeouts grow."""
LARGEST_FACTOR = 6.0


class Heartbeats(Interceptor):
    """Beats while the activity runs; a cancellation reaches the activity through its heartbeat."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Put the beating around the activity."""
        return _Beating(next)


class _Beating(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        timeout = activity.info().heartbeat_timeout
        if not timeout:
            return await super().execute_activity(input)
        beating = asyncio.create_task(_beat(timeout.total_seconds() / BEATS_PER_TIMEOUT))
        try:
            return await super().execute_activity(input)
        finally:
            beating.cancel()


async def _beat(seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        activity.heartbeat()


class LoadGauge:
    """The load of the machine: threads per core that run or wait for a core, smoothed.

    It is read when a timeout is asked for and costs nothing between. A machine on which it cannot be read counts as
    quiet.
    """

    def __init__(
        self, read: Callable[[], str] = LOADAVG.read_text, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        self._cores = os.cpu_count() or 1
        self._read_at: float | None = None
        self._runnable = 0.0

    def stretched(self, timeout: timedelta) -> timedelta:
        """Return a timeout as long as the load asks for: itself on a quiet machine, at most six times itself."""
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
