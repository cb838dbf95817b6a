"""Model calls through the real litellm, against a server that speaks each provider's wire format."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic import SecretStr

from maestro.domain.llm_errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    EmptyResponse,
    LLMFailure,
    ModelTimeout,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
)
from maestro.domain.models import ModelFacts, ModelTable
from maestro.domain.prompts import ImageRef, PromptMessage, Role
from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.middleware.deadline import deadline
from maestro.llm.middleware.refuse_empty import RefuseEmpty
from maestro.llm.protocols import Account, LLMClient, chain
from tests.support.llm_requests import KEY, MODELS, SAID, SYSTEM, OneAccount, account_at, leaks, request_of
from tests.support.llm_server import Failure, LLMServer
from tests.support.llm_wires import INPUT_TOKENS, OUTPUT_TOKENS, Json

# One worker imports the library once for all of these.
pytestmark = pytest.mark.xdist_group("litellm")

IMAGE = b"\x89PNG picture"
LIMIT = timedelta(seconds=0.4)


@pytest.fixture(scope="module")
def running() -> Iterator[LLMServer]:
    with LLMServer.running() as server:
        yield server


@pytest.fixture
def server(running: LLMServer) -> LLMServer:
    running.reset()
    return running


@pytest.fixture(params=sorted(MODELS))
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def litellm() -> AsyncIterator[LiteLLMClient]:
    client = LiteLLMClient(lambda _: IMAGE)
    yield client
    await client.close()


@pytest.fixture
def transport(litellm: LiteLLMClient, server: LLMServer, provider: str) -> LLMClient:
    return OneAccount(litellm, account_at(server, provider))


@pytest.fixture
def client(transport: LLMClient) -> LLMClient:
    return chain(transport, RefuseEmpty, deadline(lambda: timedelta(seconds=30)))


def headers_of(server: LLMServer) -> dict[str, str]:
    [request] = server.requests
    return request.headers


def body_of(server: LLMServer) -> Json:
    [request] = server.requests
    return request.body


async def failing(client: LLMClient) -> LLMFailure:
    with pytest.raises(LLMFailure) as caught:
        await client.complete(request_of())
    return caught.value


# Success


async def test_an_answer_comes_back_whole(client: LLMClient, server: LLMServer, provider: str) -> None:
    response = await client.complete(request_of())
    assert response.content == f"answer to: {SAID}"
    assert (response.provider, response.account, response.model) == (provider, "main", MODELS[provider])
    assert (response.input_tokens, response.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS)
    assert response.finish_reason == "stop"
    assert 0 <= response.duration_ms < 30_000
    assert len(server.requests) == 1


async def test_the_system_message_and_the_output_limit_arrive(
    client: LLMClient, server: LLMServer, provider: str
) -> None:
    await client.complete(request_of())
    [request] = server.requests
    assert request.texts == [SYSTEM, SAID]
    body = request.body
    match provider:
        case "gemini":
            assert body["generationConfig"]["max_output_tokens"] == 100
        case "ollama":
            assert body["options"]["num_predict"] == 100
        case _:
            assert body["max_tokens"] == 100


async def test_the_cost_is_known_or_said_to_be_unknown(client: LLMClient, provider: str) -> None:
    response = await client.complete(request_of())
    if provider in ("anthropic", "openrouter"):
        assert response.cost_usd == pytest.approx((INPUT_TOKENS * 3 + OUTPUT_TOKENS * 15) / 1e6)
    elif provider == "ollama":
        assert response.cost_usd is None
    else:
        assert response.cost_usd is not None
        assert response.cost_usd > 0


async def test_images_travel_inside_the_request(client: LLMClient, server: LLMServer, provider: str) -> None:
    await client.complete(request_of(images=(ImageRef(digest="d", content_type="image/png"),)))
    encoded, body = base64.b64encode(IMAGE).decode(), body_of(server)
    if provider == "anthropic":
        expected = {"type": "base64", "media_type": "image/png", "data": encoded}
        assert body["messages"][0]["content"][1]["source"] == expected
    elif provider == "gemini":
        assert encoded in str(body["contents"][0]["parts"])
    elif provider == "ollama":
        assert body["messages"][1]["images"] == [encoded]
    else:
        assert body["messages"][1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{encoded}"


async def test_an_empty_turn_of_the_assistant_is_left_out(client: LLMClient, server: LLMServer) -> None:
    request = request_of()
    silent = PromptMessage(role=Role.ASSISTANT, content=" ")
    await client.complete(request.model_copy(update={"messages": (*request.messages, silent, request.messages[-1])}))
    assert len(server.requests[0].texts) in (2, 3)  # some providers want two turns of one speaker as one
    assert set(server.requests[0].texts) <= {SYSTEM, SAID, SAID + SAID}


async def test_different_calls_overlap(client: LLMClient, server: LLMServer) -> None:
    server.script(delay=0.3)
    await asyncio.gather(*(client.complete(request_of(f"call {number}")) for number in range(5)))
    assert server.in_flight_peak("call") == 5


# Keys and addresses


KEY_HEADERS = {
    "openai": ("authorization", f"Bearer {KEY}"),
    "openrouter": ("authorization", f"Bearer {KEY}"),
    "ollama": ("authorization", f"Bearer {KEY}"),
    "anthropic": ("x-api-key", KEY),
    "gemini": ("x-goog-api-key", KEY),
}
PATHS = {
    "openai": "/v1/chat/completions",
    "openrouter": "/v1/chat/completions",
    "ollama": "/api/chat",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/gemini-2.5-flash:generateContent",
}


async def test_the_key_goes_into_the_providers_header_and_nowhere_else(
    client: LLMClient, server: LLMServer, provider: str
) -> None:
    await client.complete(request_of())
    [request] = server.requests
    name, value = KEY_HEADERS[provider]
    assert request.headers[name] == value
    assert [other for other in request.headers.values() if KEY in other] == [value]
    assert request.path == PATHS[provider]
    assert KEY not in str(request.body)


async def test_a_key_in_the_environment_is_not_sent_to_an_account_without_one(
    litellm: LiteLLMClient, server: LLMServer, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MODELS:
        monkeypatch.setenv(f"{name.upper()}_API_KEY", "sk-somebody-elses")
        monkeypatch.setenv(f"{name.upper()}_BASE_URL", "http://127.0.0.1:9")
    await litellm.ask(account_at(server, provider, key=""), request_of())
    assert "sk-somebody-elses" not in str(headers_of(server))


async def test_the_chosen_model_is_asked_not_the_usual_one_of_the_account(
    litellm: LiteLLMClient, server: LLMServer
) -> None:
    response = await litellm.ask(account_at(server, "anthropic"), request_of(model="claude-haiku-4-5"))
    assert (response.provider, response.model) == ("anthropic", "claude-haiku-4-5")
    assert body_of(server)["model"] == "claude-haiku-4-5"
    assert response.cost_usd == pytest.approx((INPUT_TOKENS * 1 + OUTPUT_TOKENS * 5) / 1e6)


@pytest.mark.parametrize(("known", "tokens"), [({}, 8192), ({"llama3.1": ModelFacts(window=32_768)}, 32_768)])
async def test_ollama_is_told_the_window_it_would_cut_to_otherwise(
    server: LLMServer, known: dict[str, ModelFacts], tokens: int
) -> None:
    client = LiteLLMClient(lambda _: IMAGE, ModelTable(known))
    await client.ask(account_at(server, "ollama"), request_of())
    assert body_of(server)["options"]["num_ctx"] == tokens
    await client.close()


async def test_a_gemini_that_the_library_does_not_know_gets_its_system_message(
    litellm: LiteLLMClient, server: LLMServer
) -> None:
    response = await litellm.ask(account_at(server, "gemini"), request_of(model="gemini-99-flash"))
    assert body_of(server)["system_instruction"]["parts"] == [{"text": SYSTEM}]
    assert response.cost_usd is None


# Failures: the class says what to do, whatever the provider; one request; nothing of the call in the error

CREDIT = '{"error":{"message":"Your credit balance is too low to access the API. PROMPT-SECRET-17"}}'
LIMIT_REACHED = (
    '{"error":{"message":"You have reached your specified API usage limits. You will regain access on 2099-01-01"}}'
)
NO_QUOTA = '{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}'
BAD_GEMINI_KEY = '{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}'

FAILURES: dict[str, tuple[Failure, type[LLMFailure], int | None]] = {
    "429": (Failure.status(429), RateLimited, 429),
    "429 quota": (Failure.status(429, body=NO_QUOTA), QuotaExhausted, 429),
    "402": (Failure.status(402), QuotaExhausted, 402),
    "400 credit": (Failure.status(400, body=CREDIT), QuotaExhausted, 400),
    "400 limit": (Failure.status(400, body=LIMIT_REACHED), QuotaExhausted, 400),
    "401": (Failure.status(401), AuthenticationFailed, 401),
    "403": (Failure.status(403), AuthenticationFailed, 403),
    "400 key": (Failure.status(400, body=BAD_GEMINI_KEY), AuthenticationFailed, 400),
    "400": (Failure.status(400), BadRequest, 400),
    "404": (Failure.status(404), BadRequest, 404),
    "413": (Failure.status(413), BadRequest, 413),
    "422": (Failure.status(422), BadRequest, 422),
    "redirect": (Failure.status(307, {"location": "/elsewhere"}), BadRequest, 307),
    "context": (Failure.context(), ContextOverflow, 400),
    "408": (Failure.status(408), ProviderUnavailable, 408),
    "500": (Failure.status(500), ProviderUnavailable, 500),
    "502 html": (
        Failure.status(502, {"content-type": "text/html"}, "<h1>KEY-SECRET-23</h1>"),
        ProviderUnavailable,
        502,
    ),
    "503": (Failure.status(503), ProviderUnavailable, 503),
    "529": (Failure.status(529), ProviderUnavailable, 529),
    "malformed": (Failure.malformed(), ProviderUnavailable, 200),
    "empty body": (Failure.empty_body(), ProviderUnavailable, 200),
    "empty object": (Failure.raw("{}"), ProviderUnavailable, 200),
    "reset": (Failure.reset(), ProviderUnavailable, None),
    "empty content": (Failure.empty_content(), EmptyResponse, None),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_says_what_to_do(client: LLMClient, server: LLMServer, provider: str, name: str) -> None:
    failure, expected, status = FAILURES[name]
    server.script(failure=failure)
    error = await failing(client)
    assert type(error) is expected
    assert error.status == status
    assert len(server.requests) == 1
    assert leaks(error) == []
    assert error.site is not None
    assert error.site.account == "main"
    assert f"{provider} account 'main'" in str(error)


@pytest.mark.parametrize(
    ("headers", "body", "least", "most"),
    [
        ({"retry-after": "7"}, None, 7, 7),
        ({"retry-after-ms": "1500", "retry-after": "2"}, None, 1.5, 1.5),
        ({"retry-after": format_datetime(datetime.now(UTC) + timedelta(hours=2))}, None, 6000, 7200),
        ({}, '{"error":{"code":429,"details":[{"@type":"RetryInfo","retryDelay":"13.5s"}]}}', 13.5, 13.5),
    ],
    ids=["seconds", "milliseconds", "date", "body"],
)
async def test_a_rate_limit_says_how_long(
    client: LLMClient, server: LLMServer, headers: dict[str, str], body: str | None, least: float, most: float
) -> None:
    server.script(failure=Failure.status(429, headers, body))
    error = await failing(client)
    assert isinstance(error, RateLimited)
    assert error.retry_after is not None
    assert least <= error.retry_after.total_seconds() <= most


@pytest.mark.parametrize("failure", [Failure.silence(), Failure.dribble(0.1)], ids=["silence", "dribble"])
async def test_the_deadline_is_for_the_whole_answer(transport: LLMClient, server: LLMServer, failure: Failure) -> None:
    await transport.complete(request_of("wake the library up"))
    server.reset()
    server.script(failure=failure)
    began = asyncio.get_running_loop().time()
    error = await failing(chain(transport, deadline(lambda: LIMIT)))
    assert isinstance(error, ModelTimeout)
    assert asyncio.get_running_loop().time() - began < 3
    assert len(server.requests) == 1
    assert leaks(error) == []


async def test_silence_ends_without_a_deadline_too(server: LLMServer, provider: str) -> None:
    server.script(failure=Failure.silence())
    client = LiteLLMClient(lambda _: IMAGE, read_timeout=timedelta(seconds=0.5))
    error = await failing(OneAccount(client, account_at(server, provider)))
    assert isinstance(error, ModelTimeout)
    assert len(server.requests) == 1
    assert leaks(error) == []
    await client.close()


async def test_nobody_there(litellm: LiteLLMClient, provider: str) -> None:
    account = Account("main", provider, MODELS[provider], base_url="http://127.0.0.1:9")
    error = await failing(OneAccount(litellm, account))
    assert isinstance(error, ProviderUnavailable)
    assert "no answer" in str(error)


async def test_a_provider_that_does_not_exist(litellm: LiteLLMClient) -> None:
    error = await failing(OneAccount(litellm, Account("main", "nonsense", "model", api_key=SecretStr(KEY))))
    assert isinstance(error, BadRequest)
    assert leaks(error) == []


async def test_a_cancelled_call_hangs_up(client: LLMClient, server: LLMServer) -> None:
    await client.complete(request_of("wake the library up"))
    server.reset()
    server.script(failure=Failure.silence())
    call = asyncio.create_task(client.complete(request_of()))
    await asyncio.to_thread(server.wait_for, lambda requests: bool(requests))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    [gone] = await asyncio.to_thread(server.wait_for, lambda requests: requests[0].outcome == "gone")
    assert gone.answered is not None
