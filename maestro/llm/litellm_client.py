"""The transport: one model call, one HTTP request through litellm; the only place that knows litellm."""

import asyncio
import base64
import gc
import importlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakSet

import httpx

from maestro.domain.llm_errors import CallSite, LLMFailure, NoAccount
from maestro.domain.models import price, window
from maestro.domain.prompts import ImageRef, LLMRequest, LLMResponse, PromptMessage, Role
from maestro.llm.accounts import Account, choose
from maestro.llm.classify import classify, evidence
from maestro.llm.providers import base_url, key, model_name
from maestro.llm.wire import ObservedTransport, observed

LoadImage = Callable[[ImageRef], bytes]
"""Reads the bytes of an image; may block, it is called in a thread."""

Transports = WeakSet[ObservedTransport]

READ_TIMEOUT = timedelta(minutes=10)
"""How long the provider may say nothing. A model thinks in silence, so this only ends what no deadline ends."""

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else the import downloads prices from GitHub
    "LITELLM_MODE": "PRODUCTION",  # else the import loads any .env file it finds above itself
    "HF_HUB_OFFLINE": "1",  # else counting tokens of a Llama model asks Hugging Face, for 23 s
}

_SWITCHES = {
    "telemetry": False,
    "suppress_debug_info": True,
    "disable_hf_tokenizer_download": True,
    "drop_params": True,  # a model that does not know a parameter answers without it
    "modify_params": False,
    "num_retries": 0,
    "turn_off_message_logging": True,
    "redact_messages_in_exceptions": True,
}


class LiteLLMClient:
    """Calls the chosen account once; repeating is the engine's business.

    The library takes seconds and 190 MB to import: ``warm_up`` starts that in the background, and a call waits for
    it. Use one client per process, and ``close`` it on the loop that called.
    """

    def __init__(
        self, accounts: Sequence[Account], load_image: LoadImage, *, read_timeout: timedelta = READ_TIMEOUT
    ) -> None:
        self._accounts = tuple(accounts)
        self._load_image = load_image
        self._read_timeout = read_timeout
        self._library: Future[tuple[Any, Transports]] | None = None

    def warm_up(self) -> None:
        """Begin to import the library in a thread of its own; returns at once and may be called again."""
        if self._library is None:
            importer = ThreadPoolExecutor(1, thread_name_prefix="litellm-import")
            self._library = importer.submit(_import_litellm)
            importer.shutdown(wait=False)

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer the request with exactly one HTTP request; raises an ``LLMFailure`` without any text of the call."""
        account = choose(self._accounts, request.model)
        if account is None:
            raise NoAccount("No model account is configured. Set ANTHROPIC_API_KEY or llm.accounts and restart.")
        arguments = await self._arguments(account, request)
        outcome = await self._call(account, arguments)
        if isinstance(outcome, LLMFailure):
            # Raised out here, where no exception is being handled: a context would carry prompt and key along.
            raise outcome
        return outcome

    async def close(self) -> None:
        """Close the connections that litellm keeps open; its own function for that forgets the ones to OpenAI."""
        if self._library is not None:
            _, transports = await self._loaded()
            while transports:
                await transports.pop().aclose()

    async def _loaded(self) -> tuple[Any, Transports]:
        """Return the library, and the transports it has built, when its import has finished."""
        self.warm_up()
        assert self._library is not None
        # Shielded: a call that is given up must not give up the import that others wait for.
        return await asyncio.shield(asyncio.wrap_future(self._library))

    async def _arguments(self, account: Account, request: LLMRequest) -> dict[str, Any]:
        """Put a request into litellm's words."""
        arguments: dict[str, Any] = {
            "model": model_name(account),
            "messages": [await self._turn(message) for message in request.messages if _says_something(message)],
            "max_tokens": request.max_output_tokens,
            "api_key": key(account),
            "api_base": base_url(account),
            "timeout": self._read_timeout.total_seconds(),
            "max_retries": 0,
            "num_retries": 0,
            "stream": False,
        }
        if account.provider == "ollama":
            # Ollama cuts a prompt to its own default without a word unless told how much we mean to send.
            arguments["num_ctx"] = window(account.model)
        return arguments

    async def _turn(self, message: PromptMessage) -> dict[str, Any]:
        """Put one message into litellm's words; images become data URLs, so that nobody fetches an address."""
        if not message.images:
            return {"role": message.role.value, "content": message.content}
        urls = [await asyncio.to_thread(self._data_url, image) for image in message.images]
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return {"role": message.role.value, "content": [{"type": "text", "text": message.content}, *images]}

    def _data_url(self, image: ImageRef) -> str:
        return f"data:{image.content_type};base64,{base64.b64encode(self._load_image(image)).decode('ascii')}"

    async def _call(self, account: Account, arguments: dict[str, Any]) -> LLMResponse | LLMFailure:
        """Send the one request and return what came of it, a failure as a value."""
        litellm, _ = await self._loaded()
        _introduce(litellm, arguments["model"])
        started = time.monotonic()
        with observed() as exchange:
            try:
                answer = await litellm.acompletion(**arguments)
                return _response(account, answer, timedelta(seconds=time.monotonic() - started))
            # litellm raises its own classes, those of openai, httpx and aiohttp, and bare KeyErrors at odd answers.
            except Exception as error:  # noqa: BLE001
                found = evidence(error, exchange)
        return classify(CallSite(account.provider, account.name, account.model), found, datetime.now(UTC))


def _says_something(message: PromptMessage) -> bool:
    """Tell whether to send a message: an empty turn of the assistant would become a sentence of litellm's own."""
    return message.role is not Role.ASSISTANT or bool(message.content.strip())


def _introduce(litellm: Any, model: str) -> None:
    """Tell litellm that a Gemini newer than its table takes a system message; else it hands ours to the user."""
    if model.startswith("gemini/gemini-") and model not in litellm.model_cost:
        known = {"litellm_provider": "gemini", "mode": "chat", "supports_system_messages": True}
        litellm.register_model({model: known})


def _response(account: Account, answer: Any, duration: timedelta) -> LLMResponse:
    """Read litellm's answer, the untyped one: the only code that knows its shape."""
    choice, usage = answer.choices[0], answer.usage
    known = price(account.model)
    cost = known.cost(usage.prompt_tokens, usage.completion_tokens) if known else None
    return LLMResponse(
        content=choice.message.content or "",
        model=str(answer.model or account.model).removeprefix("ollama_chat/"),
        provider=account.provider,
        account=account.name,
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        # litellm says 0 of models it has no price for; unknown is not free.
        cost_usd=cost if cost is not None else (answer._hidden_params.get("response_cost") or None),
        duration_ms=round(duration / timedelta(milliseconds=1)),
        finish_reason=str(choice.finish_reason or ""),
    )


def _import_litellm() -> tuple[Any, Transports]:
    """Import litellm so that it stays quiet, offline and without retries.

    Imported by name in a function because it takes three seconds and 190 MB that only a process that calls models
    should pay, and none should wait for. The environment is written here, and only here, because litellm reads these
    variables while it is imported and offers no other way.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    litellm = importlib.import_module("litellm")
    for name, switch in _SWITCHES.items():
        setattr(litellm, name, switch)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # it logs prompts and the text of errors
    transports = _observe(importlib.import_module("litellm.llms.custom_httpx.http_handler").AsyncHTTPHandler)
    _never_look_again()
    return litellm, transports


def _never_look_again() -> None:
    """Spare the garbage collector what the library has built and keeps for good.

    Each full collection would go through it and stop every message of the process for a quarter of a second (measured:
    4 % of Maestro's CPU time under load).
    """
    gc.collect()  # what the import left over is freed first, not kept
    gc.freeze()


def _observe(handler: Any) -> Transports:
    """Make every HTTP client that litellm builds from now on use an ``ObservedTransport``; return those in use.

    There is no supported way that holds for all providers; this method builds the transport of all of them. The set
    is kept on the class it belongs to, so that a second client of the same process finds it.
    """
    known: Transports | None = getattr(handler, "_observed", None)
    if known is not None:
        return known
    transports: Transports = WeakSet()
    create = handler._create_async_transport

    def create_observed(*args: Any, **kwargs: Any) -> ObservedTransport:
        transport = ObservedTransport(create(*args, **kwargs) or httpx.AsyncHTTPTransport())
        transports.add(transport)
        return transport

    handler._create_async_transport, handler._observed = staticmethod(create_observed), transports
    return transports
