"""Answers of nothing: some providers report success and send no text. The model is asked once more, with guidance."""

from maestro.domain.llm.errors import CallSite, EmptyResponse
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, PromptMessage, Role, Usage
from maestro.llm.middleware.call_snapshot import without_snapshot
from maestro.llm.protocols import LLMClient

GUIDANCE = "Your last reply was empty. Please reply now with a text."
GUIDANCE_WITH_TOOLS = "Your last reply was empty. Please reply now with a text, or call one of your tools."
NOTHING_TO_SAY = "I have worked on this but have no answer to give. Please ask again, perhaps in other words."
"""What a person reads when the model had nothing to say, not even when it was told so."""


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


class RefuseEmpty:
    """Lets only answers with content pass; stands inside of the recorder, so that none without is held for good."""

    def __init__(self, inner: LLMClient, /) -> None:
        self._inner = inner

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; raises ``EmptyResponse`` for an answer with neither text nor tool calls.

        A final answer calls no tools: those a model asks for all the same are taken off. With ``never_empty`` a fixed
        sentence stands in for nothing.
        """
        response = await self._inner.complete(request)
        if request.final and response.tool_calls:
            response = response.model_copy(update={"tool_calls": ()})
        if response.content.strip() or response.tool_calls:
            return response
        if request.never_empty:
            return response.model_copy(update={"content": NOTHING_TO_SAY})
        raise _refusal(request, response)


def _refusal(request: LLMRequest, response: LLMResponse) -> EmptyResponse:
    """Return the failure with what the empty answer took: it is paid for."""
    failure = EmptyResponse(
        f"{response.provider} account {response.account!r}, model {response.model!r}: {EmptyResponse.public} "
        f"{_advice(response.finish_reason, request.max_output_tokens)}"
    )
    failure.site = CallSite(response.provider, response.account, response.model)
    failure.usage = Usage.model_validate(response.model_dump(include=set(Usage.model_fields)))
    failure.cost_usd = response.cost_usd
    return failure


def _advice(finish_reason: str, max_output_tokens: int) -> str:
    """Say what an empty answer usually means."""
    match finish_reason:
        case "length":
            return (
                f"It used up its {max_output_tokens} output tokens before it said anything; raise llm.maxOutputTokens."
            )
        case "content_filter":
            return "The provider's filter blocked it."
        case _:
            return "If it stays so, try another model."
