"""Asks without tools where a model takes none: it can still talk."""

from maestro.domain.llm_errors import ToolsUnsupported
from maestro.domain.prompts import LLMRequest, LLMResponse
from maestro.domain.rounds import without_tools
from maestro.llm.protocols import LLMClient

Site = tuple[str, str]
"""An account by its name, and one of its models."""


class ToolSupport:
    """Remembers, for the life of the process, which models refuse requests with tools."""

    def __init__(self, inner: LLMClient, /) -> None:
        self._inner = inner
        self._without: set[Site] = set()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on, without its tools once they were refused; the refused request is the last of its kind.

        What tools said in earlier rounds stays, as text: another model may have asked for it.
        """
        site = (request.account, request.model)
        if not (request.tools and site in self._without):
            try:
                return await self._inner.complete(request)
            except ToolsUnsupported:
                self._without.add(site)  # the second request leaves the handler, so that it carries nothing along
        plain = request.model_copy(update={"tools": (), "messages": without_tools(request.messages)})
        return await self._inner.complete(plain)
