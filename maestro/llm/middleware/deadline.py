"""A total deadline: the one limit that a provider cannot stretch by sending a byte now and then."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from maestro.domain.llm.errors import ModelTimeout
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.protocols import LLMClient, Middleware


def deadline(limit: Callable[[], timedelta]) -> Middleware:
    """Return middleware that gives every call ``limit()`` in all; the limit is asked for at each call."""

    def wrap(inner: LLMClient, /) -> LLMClient:
        return Deadline(inner, limit)

    return wrap


class Deadline:
    """Cancels a call that takes too long."""

    def __init__(self, inner: LLMClient, limit: Callable[[], timedelta]) -> None:
        self._inner = inner
        self._limit = limit

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``ModelTimeout`` when no whole answer came in time."""
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
