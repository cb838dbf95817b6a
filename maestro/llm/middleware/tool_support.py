"""Asks without tools, or without the pictures of tools, where a model takes none: it can still talk."""

from maestro.domain.context.history import without_pictures, without_tools
from maestro.domain.llm.errors import BadRequest, ToolsUnsupported
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, Role
from maestro.llm.middleware.call_snapshot import without_snapshot
from maestro.llm.protocols import LLMClient

Site = tuple[str, str]
"""An account by its name, and one of its models."""


class ToolSupport:
    """Remembers, for the life of the process, which models refuse requests with tools, or with pictures of tools."""

    def __init__(self, inner: LLMClient, /) -> None:
        self._inner = inner
        self._without: set[Site] = set()
        self._blind: set[Site] = set()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on, without its tools once they were refused.

        What tools said in earlier rounds stays, as text: another model may have asked for it. A request that was cut
        off is sent again with the tools it had, and made anew after they were refused. A model that refuses a request
        with pictures of tools, and takes it without, is shown none any more.
        """
        site = (request.account, request.model)
        if not _has_pictures(request):
            return await self._ask(request, site)
        blind = request.model_copy(update={"messages": without_pictures(request.messages)})
        if site in self._blind:
            return await self._ask(blind, site)
        try:
            return await self._ask(request, site)
        except BadRequest:
            pass  # the second request leaves the handler, so that it carries nothing along
        response = await self._ask(without_snapshot(blind), site)
        self._blind.add(site)
        return response

    async def _ask(self, request: LLMRequest, site: Site) -> LLMResponse:
        known = bool(request.tools) and site in self._without
        try:
            return await self._inner.complete(_plain(request) if known else request)
        except ToolsUnsupported:
            self._without.add(site)
        return await self._inner.complete(without_snapshot(_plain(request)))


def _has_pictures(request: LLMRequest) -> bool:
    return any(message.images for message in request.messages if message.role is Role.TOOL)


def _plain(request: LLMRequest) -> LLMRequest:
    return request.model_copy(update={"tools": (), "messages": without_tools(request.messages)})
