"""What becomes of an answer that says nothing."""

import pytest

from maestro.domain.llm.errors import CallSite, EmptyResponse
from maestro.domain.llm.prompts import LLMResponse, ToolCall, Usage
from maestro.llm.middleware.refuse_empty import NOTHING_TO_SAY, RefuseEmpty
from tests.support.llm_fakes import Scripted
from tests.support.llm_requests import leaks, request_of, response_of

CALL = ToolCall(id="call_1_0", name="search", arguments="{}")


def asking(content: str = "") -> LLMResponse:
    """An answer that asks for a tool."""
    return response_of(content).model_copy(update={"tool_calls": (CALL,)})


async def test_an_answer_with_content_passes_untouched() -> None:
    answer = response_of("hello")
    assert await RefuseEmpty(Scripted(answer)).complete(request_of()) is answer


async def test_tool_calls_are_content_enough() -> None:
    answer = asking()
    assert await RefuseEmpty(Scripted(answer)).complete(request_of()) is answer


@pytest.mark.parametrize("content", ["", " ", "\n\t\u00a0"])
async def test_an_answer_of_nothing_is_a_failure(content: str) -> None:
    with pytest.raises(EmptyResponse) as caught:
        await RefuseEmpty(Scripted(response_of(content))).complete(request_of())
    assert caught.value.site == CallSite("provider-1", "main", "model-1")
    assert leaks(caught.value) == []


async def test_the_failure_carries_what_the_answer_took() -> None:
    answer = response_of("").model_copy(update={"input_tokens": 70, "cached_tokens": 20, "cost_usd": 0.25})
    with pytest.raises(EmptyResponse) as caught:
        await RefuseEmpty(Scripted(answer)).complete(request_of())
    assert caught.value.usage == Usage(input_tokens=70, output_tokens=1, cached_tokens=20)
    assert caught.value.cost_usd == 0.25


@pytest.mark.parametrize(("reason", "advice"), [("length", "maxOutputTokens"), ("content_filter", "filter")])
async def test_the_reason_for_an_empty_answer_is_explained(reason: str, advice: str) -> None:
    with pytest.raises(EmptyResponse, match=advice):
        await RefuseEmpty(Scripted(response_of("", reason))).complete(request_of())


async def test_a_sentence_stands_in_where_an_answer_must_not_be_empty() -> None:
    request = request_of().model_copy(update={"never_empty": True})
    answer = await RefuseEmpty(Scripted(response_of(" "))).complete(request)
    assert answer == response_of(NOTHING_TO_SAY)


async def test_a_final_answer_keeps_its_text_and_loses_its_tool_calls() -> None:
    request = request_of().model_copy(update={"final": True})
    assert await RefuseEmpty(Scripted(asking("so far"))).complete(request) == response_of("so far")


async def test_a_final_answer_of_tool_calls_alone_says_nothing() -> None:
    request = request_of().model_copy(update={"final": True})
    with pytest.raises(EmptyResponse):
        await RefuseEmpty(Scripted(asking())).complete(request)
