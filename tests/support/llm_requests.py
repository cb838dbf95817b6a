"""Requests to a model, and accounts at the local model server, for tests."""

import traceback

from pydantic import SecretStr

from maestro.domain.llm.prompts import CallKey, ImageRef, LLMRequest, LLMResponse, PromptMessage, Role, ToolSpec
from maestro.llm.protocols import Account, AccountClient
from tests.support.llm_server import LLMServer

SYSTEM = "You are SYSTEM-SECRET-31."
SAID = "Tell nobody PROMPT-SECRET-17"
KEY = "sk-KEY-SECRET-23"
SECRETS = ("SYSTEM-SECRET-31", "PROMPT-SECRET-17", "KEY-SECRET-23")
"""What must not be found in any error."""

PICTURE = b"\x89PNG picture"
"""The bytes of every image."""

MODELS = {
    "openai": "gpt-4o-mini",
    "anthropic": "claude-sonnet-4-6",
    "gemini": "gemini-2.5-flash",
    "ollama": "llama3.1",
    "openrouter": "anthropic/claude-sonnet-4",
}


SEARCH = ToolSpec(
    name="web_search",
    description="Search the web.",
    parameters='{"properties":{"query":{"type":"string"}},"required":["query"],"type":"object"}',
)
TIME = ToolSpec(name="get_time", description="Say what time it is.", parameters='{"properties":{},"type":"object"}')


def request_of(
    said: str = SAID, *, platform: str = "web", model: str = "", images: tuple[ImageRef, ...] = ()
) -> LLMRequest:
    """A request with a system message and one message of the user's."""
    return LLMRequest(
        key=CallKey(job_id="message-1", number=1),
        platform=platform,
        model=model,
        messages=(
            PromptMessage(role=Role.SYSTEM, content=SYSTEM),
            PromptMessage(role=Role.USER, content=said, images=images),
        ),
        max_output_tokens=100,
    )


def response_of(content: str, finish_reason: str = "stop") -> LLMResponse:
    """An answer with a content."""
    return LLMResponse(
        content=content,
        model="model-1",
        provider="provider-1",
        account="main",
        input_tokens=1,
        output_tokens=1,
        duration_ms=1,
        finish_reason=finish_reason,
    )


def account_at(server: LLMServer, provider: str, key: str = KEY) -> Account:
    """An account of a provider whose address is the local server."""
    return Account(
        name="main",
        provider=provider,
        model=MODELS[provider],
        api_key=SecretStr(key),
        base_url=server.base_url(provider),
    )


class OneAccount:
    """A transport with a single account."""

    def __init__(self, client: AccountClient, account: Account) -> None:
        self._client = client
        self._account = account

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Ask it."""
        return await self._client.ask(self._account, request)


def leaks(error: BaseException) -> list[str]:
    """The secrets that an error gives away: in its text, its attributes, its notes or anything it was raised from."""
    told = [*traceback.format_exception(error)]
    cause: BaseException | None = error
    while cause is not None:
        told += [str(cause), repr(cause), repr(cause.args), repr(vars(cause))]
        cause = cause.__cause__ or cause.__context__
    return [secret for secret in SECRETS if any(secret in text for text in told)]
