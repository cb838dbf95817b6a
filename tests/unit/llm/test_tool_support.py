"""Models that take no tools: they are asked again without, and from then on only so."""

import asyncio
from pathlib import Path

import pytest

from maestro.domain.llm.calls import BadRequest, ToolsUnsupported
from maestro.domain.llm.prompts import (
    CallKey,
    ImageRef,
    LLMRequest,
    LLMResponse,
    PromptMessage,
    Role,
    ToolCall,
    ToolSpec,
)
from maestro.llm.accounts import Estimates
from maestro.llm.middleware.recorder import Recorder
from maestro.llm.middleware.request_changes import SecondAttempt
from maestro.llm.protocols import LLMClient
from tests.support.answer_spool import answer_spool
from tests.support.job_rows import JobRows
from tests.support.llm_fakes import Accounts, Held, Scripted, settled
from tests.support.llm_requests import request_of, response_of

SEARCH = ToolSpec(name="search", description="Search.", parameters="{}")
WITH_TOOLS = request_of().model_copy(update={"tools": (SEARCH,), "account": "local", "model": "gemma"})
HELLO = response_of("hello")


async def test_a_model_that_takes_tools_gets_them() -> None:
    model = Scripted(HELLO)
    assert await SecondAttempt(model).complete(WITH_TOOLS) == HELLO
    assert model.asked == [WITH_TOOLS]


async def test_one_that_does_not_is_asked_again_without_and_never_again_with() -> None:
    model = Scripted(ToolsUnsupported("no tools"), HELLO, HELLO, HELLO)
    support = SecondAttempt(model)
    assert await support.complete(WITH_TOOLS) == HELLO
    assert await support.complete(WITH_TOOLS) == HELLO
    other = WITH_TOOLS.model_copy(update={"model": "qwen"})
    assert await support.complete(other) == HELLO
    assert [len(request.tools) for request in model.asked] == [1, 0, 0, 1]


async def test_what_tools_said_before_is_told_as_text() -> None:
    call = ToolCall(id="call_1_0", name="search", arguments="{}")
    asked = PromptMessage(role=Role.ASSISTANT, content="let me look", tool_calls=(call,))
    found = PromptMessage(role=Role.TOOL, content="it rains", call_id="call_1_0", tool="search")
    model = Scripted(ToolsUnsupported("no tools"), HELLO)
    request = WITH_TOOLS.model_copy(update={"messages": (*WITH_TOOLS.messages, asked, found)})
    await SecondAttempt(model).complete(request)
    told = model.asked[1].messages[-2:]
    assert [(turn.role, turn.content) for turn in told] == [
        (Role.ASSISTANT, "let me look\n[Asked for search]"),
        (Role.USER, "[Result of search]\nit rains"),
    ]
    assert not any(turn.tool_calls or turn.call_id for turn in told)


async def test_tools_that_a_cut_off_request_had_are_refused_once_more(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path)
    request = WITH_TOOLS.model_copy(update={"key": CallKey(job_id=rows.add(), number=1)})

    class NoTools:
        """A model that takes no tools."""

        async def complete(self, request: LLMRequest) -> LLMResponse:
            if request.tools:
                raise ToolsUnsupported("no tools")
            return HELLO

    def recorder(model: LLMClient) -> Recorder:
        return Recorder(model, rows.store, Estimates(Accounts(()), lambda _: None), answer_spool(rows.store))

    support = SecondAttempt(recorder(NoTools()))
    earlier = request.model_copy(update={"key": CallKey(job_id=rows.add(), number=1)})
    assert await support.complete(earlier) == HELLO
    held = Held()
    call = asyncio.create_task(recorder(held).complete(request.model_copy(update={"account": "able"})))
    while not held.calls:
        await settled()
    call.cancel()
    await asyncio.wait([call])
    assert await support.complete(request) == HELLO
    rows.store.close()


async def test_another_refusal_is_a_refusal() -> None:
    model = Scripted(BadRequest("no"))
    with pytest.raises(BadRequest):
        await SecondAttempt(model).complete(WITH_TOOLS)
    assert len(model.asked) == 1


async def test_a_model_that_refuses_pictures_of_tools_is_asked_again_without_and_shown_no_others() -> None:
    call = ToolCall(id="call_1_0", name="search", arguments="{}")
    asked = PromptMessage(role=Role.ASSISTANT, content="", tool_calls=(call,))
    image = ImageRef(digest="d", content_type="image/png")
    found = PromptMessage(role=Role.TOOL, content="a map", images=(image,), call_id="call_1_0", tool="search")
    request = WITH_TOOLS.model_copy(update={"messages": (*WITH_TOOLS.messages, asked, found)})
    broken = BadRequest("broken")
    model = Scripted(HELLO, BadRequest("no pictures"), HELLO, HELLO, broken, broken, broken, broken)
    support = SecondAttempt(model)
    for _ in range(3):
        assert await support.complete(request) == HELLO
    assert [len(one.messages[-1].images) for one in model.asked] == [1, 1, 0, 0]
    assert [one.messages[-1].content for one in model.asked] == ["a map"] * 4
    other = request.model_copy(update={"model": "qwen"})
    for _ in range(2):
        with pytest.raises(BadRequest):
            await support.complete(other)
    assert [len(one.messages[-1].images) for one in model.asked[4:]] == [1, 0, 1, 0], "it was not the pictures"


async def test_a_model_that_refuses_tools_and_then_their_pictures_is_asked_without_both() -> None:
    call = ToolCall(id="call_1_0", name="search", arguments="{}")
    asked = PromptMessage(role=Role.ASSISTANT, content="", tool_calls=(call,))
    image = ImageRef(digest="d", content_type="image/png")
    found = PromptMessage(role=Role.TOOL, content="a map", images=(image,), call_id="call_1_0", tool="search")
    request = WITH_TOOLS.model_copy(update={"messages": (*WITH_TOOLS.messages, asked, found)})
    model = Scripted(ToolsUnsupported("no tools"), BadRequest("no pictures"), HELLO, HELLO)
    support = SecondAttempt(model)
    for _ in range(2):
        assert await support.complete(request) == HELLO
    assert [(len(one.tools), len(one.messages[-1].images)) for one in model.asked] == [(1, 1), (0, 1), (0, 0), (0, 0)]
