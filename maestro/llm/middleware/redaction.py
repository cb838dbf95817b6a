"""Takes secrets out of what models are asked, where the configuration wants that (decision 21)."""

import asyncio
from collections.abc import Callable

from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.redaction import Redact, as_it_is, redacted_turns
from maestro.llm.protocols import LLMClient


class Redaction:
    """Changes a request for good: what is kept of it is what leaves."""

    def __init__(self, inner: LLMClient, redact: Callable[[], Redact]) -> None:
        """``redact`` is asked for at each call."""
        self._inner = inner
        self._redact = redact

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on without secrets; scanning a long prompt takes a while, so it is done in a thread."""
        redact = self._redact()
        if redact is not as_it_is:
            messages = await asyncio.to_thread(redacted_turns, request.messages, redact)
            request = request.model_copy(update={"messages": messages})
        return await self._inner.complete(request)
