"""Ends a running model call soon after a person asked for it (decision 16)."""

import asyncio
from collections.abc import Sequence

from maestro.domain.errors import Stopped, StoreBusy
from maestro.domain.prompts import LLMRequest, LLMResponse
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store


class StopWatch:
    """Looks at the rows of all running calls together, so that many calls cost one query per look."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._calls: dict[str, asyncio.Task[LLMResponse]] = {}
        self._looking: asyncio.Task[None] | None = None

    def watch(self, job_id: str, call: asyncio.Task[LLMResponse]) -> None:
        """Cancel this call when its job is asked to stop."""
        self._calls[job_id] = call
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def forget(self, job_id: str) -> bool:
        """Stop watching; true when the call was being watched, false when the watch had cancelled it."""
        return self._calls.pop(job_id, None) is not None

    async def _look(self) -> None:
        while self._calls:
            await asyncio.sleep(self._seconds)
            for job_id in await asyncio.to_thread(self._stopping, list(self._calls)):
                call = self._calls.pop(job_id, None)
                if call is not None:
                    call.cancel()

    def _stopping(self, job_ids: Sequence[str]) -> Sequence[str]:
        try:
            with self._store.view() as tx:
                return tx.jobs.stopping(job_ids)
        except StoreBusy:
            return ()  # the next look comes soon, and a watch that ended would never look again


class StopGuard:
    """Runs the inner call as a task that the watch can cancel."""

    def __init__(self, inner: LLMClient, watch: StopWatch) -> None:
        self._inner = inner
        self._watch = watch

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer, or raise ``Stopped`` when a person stopped the job meanwhile."""
        job_id = request.key.job_id
        call = asyncio.create_task(self._inner.complete(request))
        self._watch.watch(job_id, call)
        try:
            return await call
        except asyncio.CancelledError:
            if not self._watch.forget(job_id):
                raise Stopped("a person stopped this job") from None
            call.cancel()
            raise
        finally:
            self._watch.forget(job_id)
