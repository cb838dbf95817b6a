"""An answer that is streamed is the answer that comes at once, and a stream that breaks is none, on every wire."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from maestro.domain.llm.calls import LLMFailure, ModelTimeout, ProviderUnavailable, RateLimited
from maestro.domain.llm.prompts import LLMRequest
from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.middleware.limits import Deadline
from maestro.llm.protocols import LLMClient, chain_middleware
from maestro.llm.wire import stream_to
from tests.support.llm_requests import SEARCH, TIME, account_at, leaks, request_of
from tests.support.llm_server import Failure, LLMServer

# One worker imports the library once for all of these.
pytestmark = pytest.mark.xdist_group("litellm")

REPLY = 'One two [STATE:x] three </s> <|im_end|>\u2028 and\x85 "finishReason": it\'s 4 🎉.\n\n```python\nprint(1)\n```'
CALLS = [("web_search", {"query": 'a b "c" [1]'}), ("get_time", {})]

SAME: dict[str, dict[str, Any]] = {
    "text": {"reply": REPLY},
    "tool": {"calls": CALLS[:1]},
    "two tools beside a text": {"reply": "let me look", "calls": CALLS},
    "the same piece a hundred times": {"reply": " ha" * 300},
    "nothing": {"failure": Failure.empty_content()},
    "cached": {"cached": 4},
}


async def heard(client: LLMClient, request: LLMRequest) -> tuple[Any, list[str]]:
    """Return what the answer is, how long it took apart, and the pieces in which it was heard."""
    pieces: list[str] = []
    with stream_to(pieces.append):
        response = await client.complete(request)
    return response.model_copy(update={"duration_ms": 0}), pieces


@pytest.mark.parametrize("name", SAME)
async def test_a_streamed_answer_is_the_one_that_comes_at_once(
    transport: LLMClient, server: LLMServer, provider: str, name: str
) -> None:
    server.script(**SAME[name])
    request = request_of().model_copy(update={"tools": (SEARCH, TIME)})
    whole = (await transport.complete(request)).model_copy(update={"duration_ms": 0})
    streamed, pieces = await heard(transport, request)
    assert streamed == whole
    assert "".join(pieces).strip() == whole.content.strip()
    plain, asked = server.requests
    assert plain.body.get("stream") in (None, False)
    assert asked.path.endswith(":streamGenerateContent?alt=sse") if provider == "gemini" else asked.body["stream"]
    wish = {"stream", "stream_options"}
    assert {k: v for k, v in asked.body.items() if k not in wish} == {
        k: v for k, v in plain.body.items() if k not in wish
    }


async def test_it_is_heard_piece_by_piece(transport: LLMClient, server: LLMServer) -> None:
    server.script(reply="one two three four five six seven", pause=5)
    pieces: list[str] = []
    news = asyncio.Event()

    def hear(piece: str) -> None:
        pieces.append(piece)
        news.set()

    with stream_to(hear):
        call = asyncio.create_task(transport.complete(request_of()))
        await asyncio.wait_for(news.wait(), 60)
    assert "seven" not in "".join(pieces)
    assert not call.done()
    server.go_on()
    assert (await call).content == "one two three four five six seven"
    assert "".join(pieces) == "one two three four five six seven"


@pytest.mark.parametrize(
    "failure", [Failure.cut(5), Failure.ended(5), Failure.ended(1), Failure.trouble(5)], ids=lambda f: f.kind
)
async def test_a_stream_that_breaks_is_no_answer(
    client: LLMClient, server: LLMServer, provider: str, failure: Failure
) -> None:
    server.script(reply="one two three four five six seven", failure=failure)
    pieces: list[str] = []
    with stream_to(pieces.append), pytest.raises(LLMFailure) as caught:
        await client.complete(request_of())
    assert type(caught.value) is ProviderUnavailable
    assert caught.value.status in (200, None)
    assert len(server.requests) == 1
    assert leaks(caught.value) == []


@pytest.mark.parametrize(
    "broken", ["data: {\n\n", 'data: {"choices": 7, "candidates": 7, "message": 7}\n\n', "data: []"]
)
async def test_what_is_no_stream_of_a_provider_is_no_answer(client: LLMClient, server: LLMServer, broken: str) -> None:
    server.script(failure=Failure("raw", headers={"content-type": "text/event-stream"}, body=broken))
    with stream_to(lambda _: None), pytest.raises(LLMFailure) as caught:
        await client.complete(request_of())
    assert type(caught.value) is ProviderUnavailable
    assert leaks(caught.value) == []


async def test_a_refusal_says_the_same_to_who_wants_a_stream(client: LLMClient, server: LLMServer) -> None:
    server.script(failure=Failure.limited(7))
    with stream_to(lambda _: None), pytest.raises(RateLimited) as caught:
        await client.complete(request_of())
    assert caught.value.retry_after == timedelta(seconds=7)
    assert len(server.requests) == 1
    assert leaks(caught.value) == []


async def test_who_cannot_stream_answers_at_once(client: LLMClient, server: LLMServer) -> None:
    await client.complete(request_of())
    [request] = server.requests
    server.script(failure=Failure.dribble(0.0))
    pieces: list[str] = []
    with stream_to(pieces.append):
        response = await client.complete(request_of())
    assert (response.content, pieces) == (f"answer to: {request.last_user}", [])


async def test_the_deadline_is_for_the_whole_stream(transport: LLMClient, server: LLMServer) -> None:
    await transport.complete(request_of("wake the library up"))
    server.reset()
    server.script(reply="one two three four five", failure=Failure.stalled(4))
    with stream_to(lambda _: None), pytest.raises(ModelTimeout) as caught:
        await chain_middleware(transport, lambda inner: Deadline(inner, lambda: timedelta(seconds=0.5))).complete(
            request_of()
        )
    [gone] = await asyncio.to_thread(server.wait_for, lambda requests: requests[0].outcome == "gone")
    assert gone.answered is not None
    assert leaks(caught.value) == []


async def test_a_stopped_call_hangs_up_in_the_middle(client: LLMClient, server: LLMServer) -> None:
    server.script(reply="one two three four five", failure=Failure.stalled(4))
    news = asyncio.Event()
    with stream_to(lambda _: news.set()):
        call = asyncio.create_task(client.complete(request_of()))
        await asyncio.wait_for(news.wait(), 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.to_thread(server.wait_for, lambda requests: requests[0].outcome == "gone")


async def test_arguments_that_break_off_stay_as_the_model_wrote_them(litellm: LiteLLMClient, server: LLMServer) -> None:
    server.script(calls=[("web_search", '{"query": "SOL')])
    with stream_to(lambda _: None):
        response = await litellm.ask(account_at(server, "openai"), request_of().model_copy(update={"tools": (SEARCH,)}))
    assert [call.arguments for call in response.tool_calls] == ['{"query": "SOL']
