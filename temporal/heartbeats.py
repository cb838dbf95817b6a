"""Heartbeats for every activity that has a heartbeat timeout, so that a dead process is noticed soon."""

import asyncio
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

BEATS_PER_TIMEOUT = 3


class Heartbeats(Interceptor):
    """Beats while the activity runs; a cancellation reaches the activity through its heartbeat."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Put the beating around the activity."""
        return _Beating(next)


class _Beating(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        timeout = activity.info().heartbeat_timeout
        if not timeout:
            return await super().execute_activity(input)
        beating = asyncio.create_task(_beat(timeout.total_seconds() / BEATS_PER_TIMEOUT))
        try:
            return await super().execute_activity(input)
        finally:
            beating.cancel()


async def _beat(seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        activity.heartbeat()
