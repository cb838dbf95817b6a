"""What ends a model call early: an operator's stop, and the deadline of a request."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from maestro.domain.errors import Stopped
from maestro.domain.llm.errors import ModelTimeout
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.protocols import LLMClient
from maestro.store.cache import StoreState
from maestro.store.store import Store

Result = TypeVar("Result")

Ready = Callable[[LLMRequest], Awaitable[None]]
"""Returns when a request can be sent at once."""


class StopWatch:
    """Cancels the work of a job that was stopped or ended; the store's watcher looks for all jobs together."""

    def __init__(self, store: Store, seconds: Callable[[], float]) -> None:
        self._store = store
        self._seconds = seconds
        self._tasks: dict[str, set[asyncio.Task[Any]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def until_stopped(self, job_id: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a job's work; raises ``Stopped`` when a person stopped the job meanwhile.

        A job may have several works at once. When the caller is cancelled, so is the work.
        """
        task = asyncio.create_task(work)
        self.watch(job_id, task)
        try:
            return await task
        except asyncio.CancelledError:
            if not self.forget(job_id, task):
                raise Stopped("a person stopped this job") from None
            task.cancel()
            raise
        finally:
            self.forget(job_id, task)

    def watch(self, job_id: str, task: asyncio.Task[Any]) -> None:
        """Cancel this task when its job is asked to stop."""
        self._tasks.setdefault(job_id, set()).add(task)
        self._store.changes.watch(job_id)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def forget(self, job_id: str, task: asyncio.Task[Any]) -> bool:
        """Stop watching; true when the task was being watched, false when the watch had cancelled it."""
        tasks = self._tasks.get(job_id, set())
        watched = task in tasks
        tasks.discard(task)
        if not tasks:
            self._tasks.pop(job_id, None)
            self._store.changes.forget(job_id)
        return watched

    async def _look(self) -> None:
        with self._store.changes.subscribed(self._is_any_unwanted, self._seconds) as changed:
            while self._tasks:
                await changed.wait()
                changed.clear()
                for job_id in self._unwanted():
                    for task in self._tasks.pop(job_id, ()):
                        task.cancel()

    def _is_any_unwanted(self, state: StoreState) -> bool:
        return not self._tasks or not state.unwanted.isdisjoint(self._tasks)

    def _unwanted(self) -> frozenset[str]:
        state = self._store.changes.state
        return state.unwanted & self._tasks.keys() if state is not None else frozenset()


class StopGuard:
    """Runs the inner call so that the watch can cancel it."""

    def __init__(self, inner: LLMClient, watch: StopWatch) -> None:
        self._inner = inner
        self._watch = watch

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer, or raise ``Stopped`` when a person stopped the job meanwhile."""
        return await self._watch.until_stopped(request.key.job_id, self._inner.complete(request))


async def at_once(_request: LLMRequest) -> None:
    """Wait for nothing."""


class Deadline:
    """Ends a call that takes too long; ``limit`` is asked at each call.

    The clock starts when ``ready`` returns: loading a library is no time of the provider's.
    """

    def __init__(self, inner: LLMClient, limit: Callable[[], timedelta], ready: Ready = at_once) -> None:
        self._inner = inner
        self._limit = limit
        self._ready = ready

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``ModelTimeout`` when no whole answer came in time."""
        await self._ready(request)
        seconds = self._limit().total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._inner.complete(request)
        except TimeoutError:
            pass  # raised below, where it does not carry the cancelled call along
        raise ModelTimeout(
            f"No whole answer within {seconds:g} s. {ModelTimeout.public} "
            "Check that the provider is up; a slow model may need a larger llm.totalTimeoutSeconds."
        )
