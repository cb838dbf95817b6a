"""The end of the chain: one request to the chosen account, over HTTP through litellm, by command, or to the demo."""

import asyncio
import base64
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from maestro.domain.llm.accounts import DEMO, AccountType
from maestro.domain.llm.errors import CallSite, NoAccount
from maestro.domain.llm.models import OLLAMA, ModelTable
from maestro.domain.llm.prompts import ImageRef, LLMRequest, LLMResponse, PromptMessage
from maestro.domain.texts import storable
from maestro.llm import chat_format
from maestro.llm.litellm_library import Library
from maestro.llm.model_map import model_table
from maestro.llm.protocols import Account, AccountClient, Directory
from maestro.llm.providers import base_url, key, model_name
from maestro.llm.translation import ChatRequest

LoadImage = Callable[[ImageRef], bytes]
"""Reads the bytes of an image; may block, it is called in a thread."""

_NAME = re.compile(r"[\w.:/@+-]{1,100}", re.ASCII)

READ_TIMEOUT = timedelta(minutes=10)
"""How long the provider may say nothing. A model thinks in silence, so this only ends what no deadline ends."""


class LiteLLMClient:
    """Asks an account once; repeating is the engine's business, and asking another one the chain's.

    Share one ``Library`` per process: its owner warms it up and closes it, which this client does for its own.
    """

    def __init__(
        self,
        load_image: LoadImage,
        models: ModelTable | None = None,
        library: Library | None = None,
        *,
        read_timeout: timedelta = READ_TIMEOUT,
    ) -> None:
        self._load_image = load_image
        self._models = models or model_table()
        self._library = library or Library()
        self._read_timeout = read_timeout

    def warm_up(self) -> None:
        """Begin to import the library; returns at once and may be called again."""
        self._library.warm_up()

    async def close(self) -> None:
        """Close the connections that are kept open."""
        await self._library.close()

    async def ask(self, account: Account, request: LLMRequest) -> LLMResponse:
        """Answer with exactly one HTTP request; raises an ``LLMFailure`` without any text of the call."""
        account = replace(account, model=request.model or account.model)
        chat = await self._chat_request(account, request)
        started = time.monotonic()

        def read(answer: Any) -> LLMResponse:
            return self._response(account, request, answer, timedelta(seconds=time.monotonic() - started))

        site = CallSite(account.provider, account.name, account.model)
        return await self._library.complete(site, chat, read)

    async def _chat_request(self, account: Account, request: LLMRequest) -> ChatRequest:
        """Put a request into OpenAI's words, which litellm translates."""
        images = [await self._data_urls(message) for message in request.messages]
        # Ollama cuts a prompt to its own default without a word unless told how much we mean to send.
        window = {"num_ctx": self._models.context_window(_full_name(account))} if account.provider == OLLAMA else {}
        return ChatRequest(
            model=model_name(account),
            messages=chat_format.turns(account.provider, request, images),
            parameters={"max_tokens": request.max_output_tokens, **chat_format.tools(account.provider, request)},
            options=window,
            api_key=key(account),
            base_url=base_url(account),
            timeout=self._read_timeout.total_seconds(),
        )

    async def _data_urls(self, message: PromptMessage) -> Sequence[str]:
        return [await asyncio.to_thread(self._data_url, image) for image in message.images]

    def _data_url(self, image: ImageRef) -> str:
        return f"data:{image.content_type};base64,{base64.b64encode(self._load_image(image)).decode('ascii')}"

    def _response(self, account: Account, request: LLMRequest, answer: Any, duration: timedelta) -> LLMResponse:
        """Read litellm's answer, the untyped one."""
        choice, took = answer.choices[0], chat_format.usage(answer)
        return LLMResponse(
            content=storable(choice.message.content or ""),
            tool_calls=() if request.final else tuple(chat_format.tool_calls(choice.message, request.key.number)),
            model=_told_name(answer) or account.model,
            provider=account.provider,
            account=account.name,
            cost_usd=self._models.cost(_full_name(account), took),
            duration_ms=round(duration / timedelta(milliseconds=1)),
            finish_reason=str(choice.finish_reason or ""),
            **took.model_dump(),
        )


@dataclass(frozen=True)
class Clients:
    """Who reaches an account: over HTTP, through the command of a subscription, or without any."""

    http: AccountClient
    command: AccountClient
    demo: AccountClient

    def of(self, account: Account) -> AccountClient:
        """Return who reaches this account."""
        if account.provider == DEMO:
            return self.demo
        return self.command if account.type is AccountType.CLI else self.http


class Transport:
    """Asks the account that was chosen, once."""

    def __init__(self, directory: Directory, clients: Clients, library: Library) -> None:
        self._directory = directory
        self._clients = clients
        self._library = library

    async def ready(self, request: LLMRequest) -> None:
        """Return when the request can be sent at once; for one over HTTP that is when the library is imported."""
        account = self._directory.find(request.account)
        if account is not None and self._clients.of(account) is self._clients.http:
            await self._library.loaded()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer the request; raises ``NoAccount`` when its account left after it was chosen."""
        account = self._directory.find(request.account)
        if account is None:
            raise NoAccount(f"This process has no account {request.account!r}; see `maestro accounts list`.")
        return await self._clients.of(account).ask(account, request)


def _told_name(answer: Any) -> str:
    """Return how the provider calls the model, empty unless that is a name: it enters workflow histories."""
    name = str(answer.model or "").removeprefix("ollama_chat/")
    return name if _NAME.fullmatch(name) else ""


def _full_name(account: Account) -> str:
    """Return the model's name with its provider, as tables of models take it."""
    return f"{account.provider}/{account.model}"
