"""Asks once more, with a word of guidance, when a model answers with nothing."""

from maestro.domain.llm.errors import EmptyResponse
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, PromptMessage, Role
from maestro.llm.middleware.call_snapshot import without_snapshot
from maestro.llm.protocols import LLMClient

GUIDANCE = "Your last reply was empty. Please reply now with a text."
GUIDANCE_WITH_TOOLS = "Your last reply was empty. Please reply now with a text, or call one of your tools."


class Validator:
    """Gives an empty answer one more chance at once, which passes breaker and limits like any other request."""

    def __init__(self, inner: LLMClient, /) -> None:
        self._inner = inner

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Return an answer with content; raises ``EmptyResponse`` when there was none twice.

        The empty reply itself is left out of the second request: several providers refuse a turn without content. A
        final answer is never empty: the second time, a fixed sentence stands in for nothing.
        """
        try:
            return await self._inner.complete(request)
        except EmptyResponse:
            pass  # the second request leaves the handler, so that its failure does not carry this one along
        return await self._inner.complete(_guided(request))


def _guided(request: LLMRequest) -> LLMRequest:
    """Return the request with a turn at its end that says what is missing."""
    text = GUIDANCE_WITH_TOOLS if request.tools and not request.final else GUIDANCE
    turn = PromptMessage(role=Role.USER, content=text)
    never_empty = request.never_empty or request.final
    return without_snapshot(request, messages=(*request.messages, turn), never_empty=never_empty)
