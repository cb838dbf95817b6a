"""A progress bar for commands that run for minutes."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WIDTH = 30
"""Characters of the bar."""
ERASE_LINE = "\r\x1b[K"
REDRAW_SECONDS = 1.0
LAST_SHARE = 0.99
"""The most that a running part adds to the bar, as a share of its expected time: the rest follows at its end."""


class ProgressBar:
    """A bar on a terminal; where the error output is no terminal, a line for each tenth of the work."""

    def __init__(self, total: float, unit: str, done: float = 0) -> None:
        """``done`` is the part of the work that an earlier command has finished."""
        self._total = total
        self._unit = unit
        self._before = done
        self._began = time.monotonic()
        self._tenth = -1
        self._is_terminal = sys.stderr.isatty()

    def show(self, done: float, detail: str = "") -> None:
        """Show the work that is done, the time since the start, and an estimate of the time left."""
        share = min(1.0, done / self._total)
        passed = time.monotonic() - self._began
        bar = "#" * int(WIDTH * share)
        words = [
            f"{round(done, 1):.9g} of {self._total:.9g} {self._unit}",
            *([detail] if detail else []),
            _minutes(passed),
        ]
        if done > self._before:
            left = passed * (self._total - done) / (done - self._before)
            words.append(f"{_minutes(max(0.0, left))} left")
        text = f"[{bar:-<{WIDTH}}] {', '.join(words)}"
        if self._is_terminal:
            print(f"{ERASE_LINE}{text}", end="" if share < 1 else "\n", file=sys.stderr, flush=True)
        elif int(10 * share) > self._tenth:
            self._tenth = int(10 * share)
            print(text, file=sys.stderr, flush=True)

    @asynccontextmanager
    async def advance(self, done: float, seconds: float, detail: str) -> AsyncIterator[None]:
        """Redraw the bar while a part of the work runs that is expected to take ``seconds``, the unit of the bar."""
        redrawing = asyncio.create_task(self._redraw(done, seconds, detail))
        try:
            yield
        finally:
            redrawing.cancel()
            await asyncio.gather(redrawing, return_exceptions=True)

    async def _redraw(self, done: float, seconds: float, detail: str) -> None:
        began = time.monotonic()
        while True:
            self.show(done + LAST_SHARE * min(seconds, time.monotonic() - began), detail)
            await asyncio.sleep(REDRAW_SECONDS)

    def clear(self) -> None:
        """Erase the bar, so that its line is free for a text."""
        if self._is_terminal:
            print(ERASE_LINE, end="", file=sys.stderr, flush=True)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
