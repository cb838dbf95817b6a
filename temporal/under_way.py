"""Steps under way in this process: an attempt that Temporal repeats joins the one that still runs."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import BaseModel
from temporalio import activity

from maestro.domain.jobs.job import StepRef


class UnderWay:
    """Does each step once at a time.

    Temporal repeats a step whose heartbeats do not reach it, and that may be our own stall or an outage of Temporal
    while the step runs on: doing it twice would buy the same answer twice.
    """

    def __init__(self) -> None:
        self._steps: dict[StepRef, asyncio.Task[BaseModel]] = {}

    async def join(self, ref: StepRef, act: Callable[[], Coroutine[Any, Any, BaseModel]]) -> BaseModel:
        """Return what the step returns, begun by this attempt or by an earlier one.

        Only somebody who wants the step to end ends it; an attempt that Temporal has lost leaves it to the next.
        """
        step = self._steps.get(ref)
        if step is None:
            step = self._steps[ref] = asyncio.create_task(act())
            step.add_done_callback(lambda ended: self._forget(ref, ended))
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            if _wanted():
                step.cancel()
                await asyncio.wait([step])
            raise

    def _forget(self, ref: StepRef, ended: "asyncio.Task[BaseModel]") -> None:
        del self._steps[ref]
        if not ended.cancelled():
            ended.exception()  # its row says it; that nobody waited for it any more is no news


def _wanted() -> bool:
    """Tell whether this attempt was cancelled on purpose, and not because Temporal does not know it any more."""
    details = activity.cancellation_details()
    return details is None or details.cancel_requested or details.worker_shutdown
