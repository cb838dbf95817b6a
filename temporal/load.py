"""Lets timeouts grow with the load of the machine, so that work which is only slow is not done twice."""

import math
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

LOADAVG = Path("/proc/loadavg")
SMOOTHING_SECONDS = 10.0
"""After so long a change of the load counts for two thirds."""
FREE_PER_CORE = 2.0
"""Threads that may run or wait for each core before timeouts grow."""
LARGEST_FACTOR = 6.0


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
