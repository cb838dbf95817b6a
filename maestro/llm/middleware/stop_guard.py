"""Ends running work soon after a person asked for it (decision 16)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from maestro.domain.errors import Stopped, StoreBusy
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store

Result = TypeVar("Result")


class StopWatch:
    """Looks at the rows of all jobs with running work together, so that much work costs one query per look."""

    def __init__(self, store: Store, seconds: Callable[[], float]) -> None:
        self._store = store
        self._seconds = seconds
        self._tasks: dict[str, set[asyncio.Task[Any]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def until_stopped(self, job_id: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what the work of a job returns, or raise ``Stopped`` when a person stopped the job meanwhile.

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
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def forget(self, job_id: str, task: asyncio.Task[Any]) -> bool:
        """Stop watching; true when the task was being watched, false when the watch had cancelled it."""
        tasks = self._tasks.get(job_id, set())
        watched = task in tasks
        tasks.discard(task)
        if not tasks:
            self._tasks.pop(job_id, None)
        return watched

    async def _look(self) -> None:
        while self._tasks:
            await asyncio.sleep(self._seconds())
            for job_id in await asyncio.to_thread(self._stopping, list(self._tasks)):
                for task in self._tasks.pop(job_id, ()):
                    task.cancel()

    def _stopping(self, job_ids: Sequence[str]) -> Sequence[str]:
        try:
            with self._store.view() as tx:
                return tx.jobs.stopping(job_ids)
        except StoreBusy:
            return ()  # the next look comes soon, and a watch that ended would never look again


class StopGuard:
    """Runs the inner call so that the watch can cancel it."""

    def __init__(self, inner: LLMClient, watch: StopWatch) -> None:
        self._inner = inner
        self._watch = watch

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer, or raise ``Stopped`` when a person stopped the job meanwhile."""
        return await self._watch.until_stopped(request.key.job_id, self._inner.complete(request))
