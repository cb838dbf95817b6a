"""Times every step that this process runs: one interceptor for all of them."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

Observe = Callable[[str, str, float], None]
"""Takes the name of a step's activity, the outcome of the attempt and its seconds."""

DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
UNWANTED = frozenset({"Stopped", "JobEnded", "LaneTaken"})
"""Failures that only say that nobody wants the step any more, or not yet."""


class StepTimes(Interceptor):
    """Put it first among the interceptors: the journal, which it then encloses, is part of what a step takes."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Put the clock around the activity."""
        return _Timed(next, self._observe)


class _Timed(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, observe: Observe) -> None:
        super().__init__(following)
        self._observe = observe

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        with _Attempt(activity.info().activity_type, self._observe):
            return await super().execute_activity(input)


class _Attempt:
    """A stretch of time with a name and an outcome."""

    def __init__(self, name: str, observe: Observe) -> None:
        self._name = name
        self._observe = observe
        self._began = time.perf_counter()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell how long it took, however it ended."""
        self._observe(self._name, outcome_of(error), time.perf_counter() - self._began)


def outcome_of(error: BaseException | None) -> str:
    """Say how an attempt ended: ``cancelled`` when nobody wanted it any more, which is no failure."""
    if error is None:
        return DONE
    unwanted = isinstance(error, ApplicationError) and error.type in UNWANTED
    return CANCELLED if unwanted or isinstance(error, asyncio.CancelledError | CancelledError) else FAILED
