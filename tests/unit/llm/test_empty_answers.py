"""What becomes of an answer that says nothing: the one guided retry, and the failure after it."""

import pytest

from maestro.domain.llm.calls import CallSite, EmptyResponse, ProviderUnavailable
from maestro.domain.llm.prompts import LLMResponse, PromptMessage, Role, ToolCall, ToolSpec, Usage
from maestro.llm.middleware.request_changes import GUIDANCE, GUIDANCE_WITH_TOOLS, NOTHING_TO_SAY, SecondAttempt
from maestro.llm.protocols import chain_middleware
from tests.support.llm_fakes import Checked, Scripted
from tests.support.llm_requests import leaks, request_of, response_of

CALL = ToolCall(id="call_1_0", name="search", arguments="{}")
EMPTY = response_of("")
SEARCH = ToolSpec(name="search", description="Search.", parameters="{}")


async def test_an_answer_is_asked_for_once() -> None:
    model, answer = Scripted(response_of("hello")), response_of("hello")
    assert await chain_middleware(model, SecondAttempt, Checked).complete(request_of()) == answer
    assert model.asked == [request_of()]


async def test_after_an_empty_answer_the_model_is_told_so_and_asked_once_more() -> None:
    model, request = Scripted(EMPTY, response_of("hello")), request_of()
    assert (await chain_middleware(model, SecondAttempt, Checked).complete(request)).content == "hello"
    guided = (*request.messages, PromptMessage(role=Role.USER, content=GUIDANCE))
    assert model.asked == [request, request.model_copy(update={"messages": guided})]


async def test_a_model_that_has_tools_is_reminded_of_them() -> None:
    model = Scripted(EMPTY, response_of("hello"))
    await chain_middleware(model, SecondAttempt, Checked).complete(request_of().model_copy(update={"tools": (SEARCH,)}))
    assert model.asked[1].messages[-1].content == GUIDANCE_WITH_TOOLS


async def test_nothing_twice_is_the_typed_failure() -> None:
    model = Scripted(EMPTY, EMPTY)
    with pytest.raises(EmptyResponse) as caught:
        await chain_middleware(model, SecondAttempt, Checked).complete(request_of())
    assert not caught.value.retryable
    assert caught.value.__context__ is None
    assert len(model.asked) == 2


async def test_a_final_answer_is_never_empty() -> None:
    model = Scripted(EMPTY, EMPTY)
    request = request_of().model_copy(update={"final": True, "tools": (SEARCH,)})
    answer = await chain_middleware(model, SecondAttempt, Checked).complete(request)
    assert answer.content == NOTHING_TO_SAY
    assert [asked.never_empty for asked in model.asked] == [False, True]
    assert model.asked[1].messages[-1].content == GUIDANCE


async def test_other_failures_are_not_repeated() -> None:
    model = Scripted(ProviderUnavailable("down"))
    with pytest.raises(ProviderUnavailable):
        await chain_middleware(model, SecondAttempt, Checked).complete(request_of())
    assert len(model.asked) == 1


def asking(content: str = "") -> LLMResponse:
    """An answer that asks for a tool."""
    return response_of(content).model_copy(update={"tool_calls": (CALL,)})


async def test_an_answer_with_content_passes_untouched() -> None:
    answer = response_of("hello")
    assert await Checked(Scripted(answer)).complete(request_of()) is answer


async def test_tool_calls_are_content_enough() -> None:
    answer = asking()
    assert await Checked(Scripted(answer)).complete(request_of()) is answer


@pytest.mark.parametrize("content", ["", " ", "\n\t\u00a0"])
async def test_an_answer_of_nothing_is_a_failure(content: str) -> None:
    with pytest.raises(EmptyResponse) as caught:
        await Checked(Scripted(response_of(content))).complete(request_of())
    assert caught.value.site == CallSite("provider-1", "main", "model-1")
    assert leaks(caught.value) == []


async def test_the_failure_carries_what_the_answer_took() -> None:
    answer = response_of("").model_copy(update={"input_tokens": 70, "cached_tokens": 20, "cost_usd": 0.25})
    with pytest.raises(EmptyResponse) as caught:
        await Checked(Scripted(answer)).complete(request_of())
    assert caught.value.usage == Usage(input_tokens=70, output_tokens=1, cached_tokens=20)
    assert caught.value.cost_usd == 0.25


@pytest.mark.parametrize(("reason", "advice"), [("length", "maxOutputTokens"), ("content_filter", "filter")])
async def test_the_reason_for_an_empty_answer_is_explained(reason: str, advice: str) -> None:
    with pytest.raises(EmptyResponse, match=advice):
        await Checked(Scripted(response_of("", reason))).complete(request_of())


async def test_a_sentence_stands_in_where_an_answer_must_not_be_empty() -> None:
    request = request_of().model_copy(update={"never_empty": True})
    answer = await Checked(Scripted(response_of(" "))).complete(request)
    assert answer == response_of(NOTHING_TO_SAY)


async def test_a_final_answer_keeps_its_text_and_loses_its_tool_calls() -> None:
    request = request_of().model_copy(update={"final": True})
    assert await Checked(Scripted(asking("so far"))).complete(request) == response_of("so far")


async def test_a_final_answer_of_tool_calls_alone_says_nothing() -> None:
    request = request_of().model_copy(update={"final": True})
    with pytest.raises(EmptyResponse):
        await Checked(Scripted(asking())).complete(request)
