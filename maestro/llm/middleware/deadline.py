"""A total deadline: the one limit that a provider cannot stretch by sending a byte now and then."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from maestro.domain.llm.errors import ModelTimeout
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.protocols import LLMClient, Middleware

Ready = Callable[[LLMRequest], Awaitable[None]]
"""Returns when a request can be sent at once."""


async def at_once(_request: LLMRequest) -> None:
    """Wait for nothing."""


def deadline(limit: Callable[[], timedelta], ready: Ready = at_once) -> Middleware:
    """Return middleware that gives every call ``limit()`` in all; the limit is asked for at each call.

    The clock starts when ``ready`` returns: loading a library is no time of the provider's.
    """

    def wrap(inner: LLMClient, /) -> LLMClient:
        return Deadline(inner, limit, ready)

    return wrap


class Deadline:
    """Cancels a call that takes too long."""

    def __init__(self, inner: LLMClient, limit: Callable[[], timedelta], ready: Ready) -> None:
        self._inner = inner
        self._limit = limit
        self._ready = ready

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``ModelTimeout`` when no whole answer came in time."""
        await self._ready(request)
        seconds = self._limit().total_seconds()
        response = await self._within(seconds, request)
        if response is None:
            raise ModelTimeout(
                f"No whole answer within {seconds:g} s. {ModelTimeout.public} "
                "Check that the provider is up; a slow model may need a larger llm.totalTimeoutSeconds."
            )
        return response

    async def _within(self, seconds: float, request: LLMRequest) -> LLMResponse | None:
        """Return the answer, None when time is up; raising in the handler would carry the cancelled call along."""
        try:
            async with asyncio.timeout(seconds):
                return await self._inner.complete(request)
        except TimeoutError:
            return None
