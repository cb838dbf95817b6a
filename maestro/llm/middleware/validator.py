"""Refuses an answer that says nothing: some providers report success and send no text."""

from maestro.domain.llm_errors import CallSite, EmptyResponse
from maestro.domain.prompts import LLMRequest, LLMResponse
from maestro.llm.protocols import LLMClient


class Validator:
    """Lets only answers with content pass; asking again is the engine's business."""

    def __init__(self, inner: LLMClient, /) -> None:
        self._inner = inner

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``EmptyResponse`` for an answer of nothing but blanks."""
        response = await self._inner.complete(request)
        if response.content.strip():
            return response
        failure = EmptyResponse(
            f"{response.provider} account {response.account!r}, model {response.model!r}: {EmptyResponse.public} "
            f"{_advice(response.finish_reason)}"
        )
        failure.site = CallSite(response.provider, response.account, response.model)
        raise failure


def _advice(finish_reason: str) -> str:
    """Say what an empty answer usually means."""
    match finish_reason:
        case "length":
            return "It used up its output tokens before it said anything; raise llm.maxOutputTokens."
        case "content_filter":
            return "The provider's filter blocked it."
        case _:
            return "It is tried again; if it stays so, try another model."
