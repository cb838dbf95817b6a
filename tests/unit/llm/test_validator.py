"""The one guided retry after an empty answer."""

import pytest

from maestro.domain.llm.errors import EmptyResponse, ProviderUnavailable
from maestro.domain.llm.prompts import PromptMessage, Role, ToolSpec
from maestro.llm.middleware.refuse_empty import NOTHING_TO_SAY, RefuseEmpty
from maestro.llm.middleware.validator import GUIDANCE, GUIDANCE_WITH_TOOLS, Validator
from maestro.llm.protocols import chain
from tests.support.llm_fakes import Scripted
from tests.support.llm_requests import request_of, response_of

EMPTY = response_of("")
SEARCH = ToolSpec(name="search", description="Search.", parameters="{}")


async def test_an_answer_is_asked_for_once() -> None:
    model, answer = Scripted(response_of("hello")), response_of("hello")
    assert await chain(model, Validator, RefuseEmpty).complete(request_of()) == answer
    assert model.asked == [request_of()]


async def test_after_an_empty_answer_the_model_is_told_so_and_asked_once_more() -> None:
    model, request = Scripted(EMPTY, response_of("hello")), request_of()
    assert (await chain(model, Validator, RefuseEmpty).complete(request)).content == "hello"
    guided = (*request.messages, PromptMessage(role=Role.USER, content=GUIDANCE))
    assert model.asked == [request, request.model_copy(update={"messages": guided})]


async def test_a_model_that_has_tools_is_reminded_of_them() -> None:
    model = Scripted(EMPTY, response_of("hello"))
    await chain(model, Validator, RefuseEmpty).complete(request_of().model_copy(update={"tools": (SEARCH,)}))
    assert model.asked[1].messages[-1].content == GUIDANCE_WITH_TOOLS


async def test_nothing_twice_is_the_typed_failure() -> None:
    model = Scripted(EMPTY, EMPTY)
    with pytest.raises(EmptyResponse) as caught:
        await chain(model, Validator, RefuseEmpty).complete(request_of())
    assert not caught.value.retryable
    assert caught.value.__context__ is None
    assert len(model.asked) == 2


async def test_a_final_answer_is_never_empty() -> None:
    model = Scripted(EMPTY, EMPTY)
    request = request_of().model_copy(update={"final": True, "tools": (SEARCH,)})
    answer = await chain(model, Validator, RefuseEmpty).complete(request)
    assert answer.content == NOTHING_TO_SAY
    assert [asked.never_empty for asked in model.asked] == [False, True]
    assert model.asked[1].messages[-1].content == GUIDANCE


async def test_other_failures_are_not_repeated() -> None:
    model = Scripted(ProviderUnavailable("down"))
    with pytest.raises(ProviderUnavailable):
        await chain(model, Validator, RefuseEmpty).complete(request_of())
    assert len(model.asked) == 1
