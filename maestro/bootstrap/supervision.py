"""Waits for the parts of a process: the first that fails ends it, and ending is orderly."""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Any


async def first_of(*events: Awaitable[Any], watched: Sequence[asyncio.Task[Any]]) -> None:
    """Return when one of the events is over; raise what a watched task raised if it ends before."""
    waiting = [asyncio.ensure_future(event) for event in events]
    try:
        done, _ = await asyncio.wait([*waiting, *watched], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            _raise_cause(task)
    finally:
        for task in waiting:
            task.cancel()


async def end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait until they are over; what they raise now was told before or no longer matters."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        # Ending must go on to the next part whatever one part raises.
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


def _raise_cause(task: "asyncio.Future[Any]") -> None:
    """Raise the task's own error instead of the group that a task group wraps around it."""
    error = task.exception() if not task.cancelled() else None
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
