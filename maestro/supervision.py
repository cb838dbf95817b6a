"""Tasks of a process: the first that fails ends it, ending is orderly, and some work is never cut in half."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")

Service = Coroutine[Any, Any, None]


async def uninterrupted(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what the work returns; when cancelled meanwhile, finish the work first and then be cancelled."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


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
    """Cancel the tasks and wait until they are over; what they raise now is ignored."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        # The next part must be ended even if this one raises.
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


def _raise_cause(task: "asyncio.Future[Any]") -> None:
    """Raise the task's own error instead of the group that a task group wraps around it."""
    error = task.exception() if not task.cancelled() else None
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error


class Services:
    """Runs services side by side: the first that fails ends all, and ending is orderly."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, *services: Service) -> None:
        """Let these run."""
        self._tasks += [asyncio.create_task(service) for service in services]

    async def until_stopped(self, begun: Service, drain: Callable[[], Service]) -> None:
        """Wait for ``begun``, which announces the start, and for the end; then drain, and end what still runs."""
        try:
            await first_of(self._stop.wait(), begun, watched=self._tasks)
            await first_of(self._stop.wait(), watched=self._tasks)
            await drain()
        finally:
            await end(self._tasks)


class ReadySignals:
    """Signals that each of several parts has begun."""

    def __init__(self) -> None:
        self._events: list[asyncio.Event] = []

    def another(self) -> Callable[[], None]:
        """Expect one more, and return what it calls when it has begun."""
        event = asyncio.Event()
        self._events.append(event)
        return event.set

    @property
    def done(self) -> bool:
        """Whether all have begun."""
        return all(event.is_set() for event in self._events)

    async def wait(self) -> None:
        """Return when all have begun."""
        for event in self._events:
            await event.wait()
