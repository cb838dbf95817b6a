"""A failed call says what to do, whatever the provider; it is one request, and nothing of it is in the error."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from maestro.domain.llm.calls import (
    AccountUnusable,
    AnswerTooLarge,
    AuthenticationFailed,
    BadRequest,
    CallSite,
    ContextOverflow,
    EmptyResponse,
    LLMFailure,
    ModelTimeout,
    ProviderUnavailable,
    QuotaExhausted,
    RateLimited,
)
from maestro.domain.llm.prompts import PromptMessage, Role, ToolCall
from maestro.llm.litellm_client import LiteLLMClient, LiteLLMLibrary
from maestro.llm.middleware.limits import Deadline
from maestro.llm.protocols import Account, LLMClient, chain_middleware
from maestro.llm.wire import stream_to
from tests.support.llm_requests import KEY, MODELS, PICTURE, SAID, SEARCH, OneAccount, account_at, leaks, request_of
from tests.support.llm_server import Failure, LLMServer

# One worker imports the library once for all of these.
pytestmark = pytest.mark.xdist_group("litellm")

LIMIT = timedelta(seconds=0.4)


async def failing(client: LLMClient) -> LLMFailure:
    with pytest.raises(LLMFailure) as caught:
        await client.complete(request_of())
    return caught.value


CREDIT = '{"error":{"message":"Your credit balance is too low to access the API. PROMPT-SECRET-17"}}'
LIMIT_REACHED = (
    '{"error":{"message":"You have reached your specified API usage limits. You will regain access on 2099-01-01"}}'
)
NO_QUOTA = '{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}'
BAD_GEMINI_KEY = '{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}'

ECHO = json.dumps(
    {"error": {"message": "Input should be a valid string", "code": 400, "input": "insufficient_quota " * 5_000}}
)

FAILURES: dict[str, tuple[Failure, type[LLMFailure], int | None]] = {
    "429": (Failure.status(429), RateLimited, 429),
    "429 quota": (Failure.status(429, body=NO_QUOTA), QuotaExhausted, 429),
    "no credit": (Failure.credit(), QuotaExhausted, None),
    "402": (Failure.status(402), QuotaExhausted, 402),
    "400 credit": (Failure.status(400, body=CREDIT), QuotaExhausted, 400),
    "400 limit": (Failure.status(400, body=LIMIT_REACHED), QuotaExhausted, 400),
    "401": (Failure.status(401), AuthenticationFailed, 401),
    "403": (Failure.status(403), AuthenticationFailed, 403),
    "400 key": (Failure.status(400, body=BAD_GEMINI_KEY), AuthenticationFailed, 400),
    "400": (Failure.status(400), BadRequest, 400),
    "400 that sends the prompt back": (Failure.status(400, body=ECHO), BadRequest, 400),
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
    assert status is None or error.status == status
    assert len(server.requests) == 1
    assert leaks(error) == []
    assert error.site is not None
    assert error.site.account == "main"
    assert f"{provider} account 'main'" in str(error)


@pytest.mark.parametrize(
    ("failure", "least", "most"),
    [
        (Failure.limited(7), 7, 7),
        (Failure.status(429, {"retry-after-ms": "1500", "retry-after": "2"}), 1.5, 1.5),
        (Failure.limited_until(datetime.now(UTC) + timedelta(hours=2)), 6000, 7200),
        (Failure.limited_in_body(13.5), 13.5, 13.5),
        (Failure.status(503, {"retry-after": "4"}), 4, 4),
        (Failure.status(400, body=LIMIT_REACHED), 3600 * 24, 3600 * 24 * 31),
    ],
    ids=["seconds", "milliseconds", "date", "body", "overload", "until a day"],
)
async def test_a_failure_says_how_long_to_wait(
    client: LLMClient, server: LLMServer, failure: Failure, least: float, most: float
) -> None:
    server.script(failure=failure)
    error = await failing(client)
    assert error.retry_after is not None
    assert least <= error.retry_after.total_seconds() <= most


async def test_a_failure_tells_nothing_of_tools(client: LLMClient, server: LLMServer) -> None:
    call = ToolCall(id="call_1_0", name="web_search", arguments=json.dumps({"query": SAID}))
    asked = PromptMessage(role=Role.ASSISTANT, content=SAID, tool_calls=(call,))
    result = PromptMessage(role=Role.TOOL, content=SAID, call_id=call.id, tool=call.name)
    request = request_of().model_copy(update={"tools": (SEARCH,)})
    server.script(failure=Failure.status(400))
    for messages in ((*request.messages, asked, result), (*request.messages, result)):
        with pytest.raises(LLMFailure) as caught:
            await client.complete(request.model_copy(update={"messages": messages}))
        assert leaks(caught.value) == []
    assert len(server.requests) <= 2


@pytest.mark.parametrize("failure", [Failure.silence(), Failure.dribble(0.1)], ids=["silence", "dribble"])
async def test_the_deadline_is_for_the_whole_answer(transport: LLMClient, server: LLMServer, failure: Failure) -> None:
    await transport.complete(request_of("wake the library up"))
    server.reset()
    server.script(failure=failure)
    began = asyncio.get_running_loop().time()
    error = await failing(chain_middleware(transport, lambda inner: Deadline(inner, lambda: LIMIT)))
    assert isinstance(error, ModelTimeout)
    assert asyncio.get_running_loop().time() - began < 3
    assert len(server.requests) == 1
    assert leaks(error) == []


async def test_silence_ends_without_a_deadline_too(server: LLMServer, provider: str) -> None:
    server.script(failure=Failure.silence())
    client = LiteLLMClient(lambda _: PICTURE, read_timeout=timedelta(seconds=0.5))
    error = await failing(OneAccount(client, account_at(server, provider)))
    assert isinstance(error, ModelTimeout)
    assert len(server.requests) == 1
    assert leaks(error) == []
    await client.library.close_connections()


async def test_an_answer_is_not_read_beyond_the_limit(server: LLMServer, provider: str) -> None:
    server.script(reply="x" * 1_000_000)
    limited = LiteLLMClient(lambda _: PICTURE, library=LiteLLMLibrary(lambda: 100_000))
    client = OneAccount(limited, account_at(server, provider))
    at_once = await failing(client)
    with stream_to(lambda _: None):
        streamed = await failing(client)
    for failure in (at_once, streamed):
        assert type(failure) is AnswerTooLarge
        assert "llm.maxAnswerBytes" in str(failure)
        assert failure.site == CallSite(provider, "main", MODELS[provider])
        assert leaks(failure) == []


async def test_nobody_there(litellm: LiteLLMClient, provider: str) -> None:
    account = Account("main", provider, MODELS[provider], base_url="http://127.0.0.1:9")
    error = await failing(OneAccount(litellm, account))
    assert isinstance(error, ProviderUnavailable)
    assert "no answer" in str(error)


async def test_a_provider_that_does_not_exist(litellm: LiteLLMClient) -> None:
    error = await failing(OneAccount(litellm, Account("main", "nonsense", "model", api_key=SecretStr(KEY))))
    assert type(error) is AccountUnusable
    assert (error.status, error.retryable) == (None, False)
    assert "the spelling of the account's provider" in str(error)
    assert leaks(error) == []


async def test_a_key_that_cannot_be_sent(litellm: LiteLLMClient, server: LLMServer, provider: str) -> None:
    error = await failing(OneAccount(litellm, account_at(server, provider, KEY + "\N{EM DASH}")))
    assert type(error) is AccountUnusable
    assert server.requests == []
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
