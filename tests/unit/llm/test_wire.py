"""One model call is one HTTP request, and what it met is known."""

import json

import httpx
import pytest

from maestro.llm.listening import heard_by
from maestro.llm.wire import BODY_LIMIT, ObservedTransport, SecondRequestError, observed


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
    with observed() as exchange:
        response = await client.get("/")
    assert (exchange.requests, exchange.status, exchange.body) == (1, 429, "slow down")
    assert exchange.headers["retry-after"] == "7"
    assert response.text == "slow down"


async def test_a_success_is_not_kept() -> None:
    client = client_that_gets(httpx.Response(200, text="an answer"), [])
    with observed() as exchange:
        assert (await client.get("/")).text == "an answer"
    assert (exchange.status, exchange.body) == (200, "")


async def test_a_long_error_is_cut() -> None:
    client = client_that_gets(httpx.Response(500, text="x" * (BODY_LIMIT + 1)), [])
    with observed() as exchange:
        await client.get("/")
    assert len(exchange.body) == BODY_LIMIT


async def test_half_of_a_character_finds_its_other_half() -> None:
    lines = [{"message": {"content": half}, "done": half == "\ude00"} for half in ("\ud83d", "\ude00")]
    stream = "".join(f"{json.dumps(line)}\n" for line in lines)
    answer = httpx.Response(200, headers={"content-type": "application/x-ndjson"}, content=stream)
    client = client_that_gets(answer, [])
    heard: list[str] = []
    with heard_by(heard.append), observed():
        response = await client.post("/api/chat", content='{"messages": ["\\ud83d"]}')
    assert response.json()["message"]["content"] == "\U0001f600"


async def test_a_second_request_is_refused() -> None:
    sent: list[str] = []
    client = client_that_gets(httpx.Response(200), sent)
    with observed():
        await client.get("/first")
        with pytest.raises(SecondRequestError):
            await client.get("/second")
    assert sent == ["http://model/first"]


async def test_a_redirect_is_not_followed() -> None:
    sent: list[str] = []
    client = client_that_gets(httpx.Response(307, headers={"location": "http://elsewhere/"}), sent)
    with observed() as exchange, pytest.raises(SecondRequestError):
        await client.get("/")
    assert sent == ["http://model/"]
    assert exchange.status == 307


async def test_outside_a_call_nothing_is_watched() -> None:
    sent: list[str] = []
    client = client_that_gets(httpx.Response(200), sent)
    await client.get("/first")
    await client.get("/second")
    assert len(sent) == 2
