"""Helpers for the asyncio tasks of a process: groups of services, orderly shutdown, and work that must finish."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

Service = Coroutine[Any, Any, None]


async def finish_despite_cancellation(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of the work; a cancellation of the caller takes effect only after the work has ended."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def wait_for_first(*events: Awaitable[Any], watched: Sequence[asyncio.Task[Any]]) -> None:
    """Return when the first event occurs or a watched task ends; if that task failed, raise its error."""
    waiting = [asyncio.ensure_future(event) for event in events]
    try:
        done, _ = await asyncio.wait([*waiting, *watched], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception() if not task.cancelled() else None
            while isinstance(error, BaseExceptionGroup):
                # The task's own error, instead of the group that a task group wraps around the error.
                error = error.exceptions[0]
            if error is not None:
                raise error
    finally:
        for task in waiting:
            task.cancel()


async def gather_limited(limit: int, work: Callable[[Item], Awaitable[Result]], items: Iterable[Item]) -> list[Result]:
    """Run ``work`` on each item, at most ``limit`` at once, and return the results in the order of the items."""
    gate = asyncio.Semaphore(limit)

    async def work_at_gate(item: Item) -> Result:
        async with gate:
            return await work(item)

    return await asyncio.gather(*map(work_at_gate, items))


async def cancel_tasks(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait until they have ended; errors that the tasks raise meanwhile are ignored."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        # The remaining tasks must be ended even if this task raises.
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


class Services:
    """A group of services that run side by side until the first one fails or a stop is requested; then all end."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[None]] = []

    def add_services(self, *services: Service) -> None:
        """Start these services as tasks of the group."""
        self._tasks += [asyncio.create_task(service) for service in services]

    async def until_stopped(self, begun: Service, drain: Callable[[], Service]) -> None:
        """Wait for ``begun`` (the end of the start), then for the stop; then run ``drain`` and cancel all services."""
        try:
            await wait_for_first(self._stop.wait(), begun, watched=self._tasks)
            await wait_for_first(self._stop.wait(), watched=self._tasks)
            await drain()
        finally:
            await cancel_tasks(self._tasks)


class ReadySignals:
    """The signals with which several parts of a process report that they are ready."""

    def __init__(self) -> None:
        self._events: list[asyncio.Event] = []

    def expect_part(self) -> Callable[[], None]:
        """Expect one more part, and return the function that this part calls when it is ready."""
        event = asyncio.Event()
        self._events.append(event)
        return event.set

    @property
    def done(self) -> bool:
        """Whether all parts are ready."""
        return all(event.is_set() for event in self._events)

    async def wait_until_ready(self) -> None:
        """Return when all parts are ready."""
        for event in self._events:
            await event.wait()
