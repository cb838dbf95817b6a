"""Asks without tools where a model takes none: it can still talk."""

from maestro.domain.context.rounds import without_tools
from maestro.domain.llm.errors import ToolsUnsupported
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.protocols import LLMClient

Site = tuple[str, str]
"""An account by its name, and one of its models."""


class ToolSupport:
    """Remembers, for the life of the process, which models refuse requests with tools."""

    def __init__(self, inner: LLMClient, /) -> None:
        self._inner = inner
        self._without: set[Site] = set()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on, without its tools once they were refused.

        What tools said in earlier rounds stays, as text: another model may have asked for it. A request that was cut
        off is sent again with the tools it had, and made anew after they were refused.
        """
        site = (request.account, request.model)
        known = bool(request.tools) and site in self._without
        try:
            return await self._inner.complete(_plain(request) if known else request)
        except ToolsUnsupported:
            self._without.add(site)  # the second request leaves the handler, so that it carries nothing along
        return await self._inner.complete(_plain(request))


def _plain(request: LLMRequest) -> LLMRequest:
    return request.model_copy(update={"tools": (), "messages": without_tools(request.messages)})
