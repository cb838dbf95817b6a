"""One model call is one HTTP request, and what it met is known."""

import json

import httpx
import pytest

from maestro.llm.wire import BODY_LIMIT, ObservedTransport, SecondRequestError, observe_exchange, stream_to


def client_that_gets(answer: httpx.Response, sent: list[str]) -> httpx.AsyncClient:
    """A client whose requests are noted and all answered alike."""

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        return answer

    transport = ObservedTransport(httpx.MockTransport(respond))
    return httpx.AsyncClient(transport=transport, follow_redirects=True, base_url="http://model")


async def test_an_error_is_seen_and_still_readable() -> None:
    sent: list[str] = []
    client = client_that_gets(httpx.Response(429, headers={"retry-after": "7"}, text="slow down"), sent)
    with observe_exchange() as exchange:
        response = await client.get("/")
    assert (exchange.requests, exchange.status, exchange.body) == (1, 429, "slow down")
    assert exchange.headers["retry-after"] == "7"
    assert response.text == "slow down"


async def test_a_success_is_not_kept() -> None:
    client = client_that_gets(httpx.Response(200, text="an answer"), [])
    with observe_exchange() as exchange:
        assert (await client.get("/")).text == "an answer"
    assert (exchange.status, exchange.body) == (200, "")


async def test_a_long_error_is_cut() -> None:
    client = client_that_gets(httpx.Response(500, text="x" * (BODY_LIMIT + 1)), [])
    with observe_exchange() as exchange:
        await client.get("/")
    assert len(exchange.body) == BODY_LIMIT


async def test_half_of_a_character_finds_its_other_half() -> None:
    lines = [{"message": {"content": half}, "done": half == "\ude00"} for half in ("\ud83d", "\ude00")]
    stream = "".join(f"{json.dumps(line)}\n" for line in lines)
    answer = httpx.Response(200, headers={"content-type": "application/x-ndjson"}, content=stream)
    client = client_that_gets(answer, [])
    heard: list[str] = []
    with stream_to(heard.append), observe_exchange():
        response = await client.post("/api/chat", content='{"messages": ["\\ud83d"]}')
    assert response.json()["message"]["content"] == "\U0001f600"


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, {"error": {"message": "Your organization must be verified", "param": "stream"}}),
        (400, {"error": {"message": "unknown", "param": "stream_options.include_usage"}}),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]}),
    ],
)
async def test_what_may_not_be_streamed_is_asked_for_at_once(status: int, refusal: dict[str, object]) -> None:
    streamed: list[bool] = []

    def respond(request: httpx.Request) -> httpx.Response:
        streamed.append("stream" in json.loads(request.content))
        return httpx.Response(status, json=refusal) if streamed[-1] else httpx.Response(200, text="an answer")

    heard: list[str] = []
    client = httpx.AsyncClient(transport=ObservedTransport(httpx.MockTransport(respond)), base_url="http://model")
    for _ in range(2):
        with stream_to(heard.append), observe_exchange() as exchange:
            assert (await client.post("/chat/completions", json={"model": "m"})).text == "an answer"
        assert (exchange.requests, exchange.status, exchange.body) == (1, 200, "")
    assert (streamed, heard) == ([True, False, False], [])


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, '{"error": {"message": "no stream_options in: stream", "param": "messages"}}'),
        (400, '["stream"]'),
        (400, "stream"),
        (500, '{"error": {"param": "stream"}}'),
    ],
)
async def test_what_is_refused_for_another_reason_is_asked_for_once(status: int, refusal: str) -> None:
    sent: list[str] = []
    client = client_that_gets(httpx.Response(status, text=refusal), sent)
    heard: list[str] = []
    with stream_to(heard.append), observe_exchange() as exchange:
        assert (await client.post("/chat/completions", json={"model": "m"})).text == refusal
    assert (len(sent), exchange.status, exchange.body) == (1, status, refusal)


async def test_a_second_request_is_refused() -> None:
    sent: list[str] = []
    client = client_that_gets(httpx.Response(200), sent)
    with observe_exchange():
        await client.get("/first")
        with pytest.raises(SecondRequestError):
            await client.get("/second")
    assert sent == ["http://model/first"]


async def test_a_redirect_is_not_followed() -> None:
    sent: list[str] = []
    client = client_that_gets(httpx.Response(307, headers={"location": "http://elsewhere/"}), sent)
    with observe_exchange() as exchange, pytest.raises(SecondRequestError):
        await client.get("/")
    assert sent == ["http://model/"]
    assert exchange.status == 307


async def test_outside_a_call_nothing_is_watched() -> None:
    sent: list[str] = []
    client = client_that_gets(httpx.Response(200), sent)
    await client.get("/first")
    await client.get("/second")
    assert len(sent) == 2
