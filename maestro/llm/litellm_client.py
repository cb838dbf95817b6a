"""The transports at the end of the middleware chain: HTTP through litellm, the command ``claude``, the demo model."""

import asyncio
import base64
import importlib
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from weakref import WeakSet

import httpx
from pydantic import BaseModel, ConfigDict

from maestro.domain.llm.accounts import DEMO, AccountType
from maestro.domain.llm.calls import CallSite, NoAccount
from maestro.domain.llm.models import OLLAMA, ModelTable
from maestro.domain.llm.prompts import ImageRef, LLMRequest, LLMResponse
from maestro.domain.texts import storable_text
from maestro.importing import collector_off
from maestro.llm import chat_format
from maestro.llm.accounts import build_model_table
from maestro.llm.failures import classify_failure, collect_evidence
from maestro.llm.protocols import Account, AccountClient, AccountDirectory
from maestro.llm.translation import ChatRequest, Translator, base_url, build_translator, choose_key_to_send, model_name
from maestro.llm.wire import ANSWER_LIMIT, ObservedTransport, observe_exchange

Transports = WeakSet[ObservedTransport]

Answer = TypeVar("Answer")

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # Without this variable, importing litellm downloads prices from GitHub.
    "LITELLM_MODE": "PRODUCTION",  # Without this variable, importing litellm loads any .env file in a parent folder.
    "HF_HUB_OFFLINE": "1",  # Without this variable, counting a Llama model's tokens calls Hugging Face.
}

_SWITCHES = {
    "telemetry": False,
    "suppress_debug_info": True,
    "disable_hf_tokenizer_download": True,
    "drop_params": True,  # litellm drops parameters that a model does not support
    "modify_params": False,
    "num_retries": 0,
    "turn_off_message_logging": True,
    "redact_messages_in_exceptions": True,
}

LoadImage = Callable[[ImageRef], bytes]
"""A function that reads the bytes of an image; it may block, because it is called in a thread."""

_NAME = re.compile(r"[\w.:/@+-]{1,100}", re.ASCII)

READ_TIMEOUT = timedelta(minutes=10)
"""The longest time without received data, because a model may think that long. A ``Deadline`` ends calls sooner."""


@dataclass(frozen=True, slots=True)
class ImportedLibrary:
    """The imported litellm: its module, its HTTP handler, Maestro's translator, and the transports in use.

    ``handler`` owns litellm's HTTP client; the reference to it keeps the client open.
    """

    litellm: Any
    translator: Translator | None
    handler: Any
    transports: Transports

    async def complete_chat(self, chat: ChatRequest) -> Any:
        """Send a chat request by Maestro's translator; without a translation for it, through litellm's entry point."""
        translation = self.translator.find_translation(chat) if self.translator is not None else None
        if translation is None:
            return await self.litellm.acompletion(**chat.build_arguments())
        return await translation.send_request(chat, self.handler.client)


class LiteLLMLibrary:
    """The library litellm, imported in the background because the import takes seconds and 190 MB.

    ``warm_up`` begins the import, and calls wait for it. Use one object per process, and call ``close_connections`` on
    the event loop that made the calls.
    """

    def __init__(self, answer_limit: Callable[[], int] = lambda: ANSWER_LIMIT) -> None:
        """``answer_limit`` returns the size in bytes of the largest answer that is read."""
        self._answer_limit = answer_limit
        self._imported: Future[ImportedLibrary] | None = None

    def warm_up(self) -> None:
        """Begin to import the library in a separate thread; returns at once and may be called again."""
        if self._imported is None:
            importer = ThreadPoolExecutor(1, thread_name_prefix="litellm-import")
            self._imported = importer.submit(_import_litellm)
            importer.shutdown(wait=False)

    @property
    def is_loading(self) -> bool:
        """Whether litellm is being imported."""
        return self._imported is not None and not self._imported.done()

    async def wait_for_import(self) -> None:
        """Wait until the import of litellm has ended; return at once if it was not begun."""
        if self._imported is not None:
            await self.load_litellm()

    async def complete_chat(self, site: CallSite, chat: ChatRequest, read: Callable[[Any], Answer]) -> Answer:
        """Answer a chat request with exactly one HTTP request, and return the answer as parsed by ``read``.

        Every failure, also a failure of ``read``, is raised as an ``LLMFailure`` that quotes no prompt and no answer.
        """
        imported = await self.load_litellm()
        return await self._call_once(site, imported.complete_chat(chat), read)

    async def transcribe_recording(
        self, site: CallSite, arguments: Mapping[str, Any], read: Callable[[Any], Answer]
    ) -> Answer:
        """Transcribe a recording with exactly one HTTP request; raises failures as ``complete_chat`` does."""
        imported = await self.load_litellm()
        return await self._call_once(site, imported.litellm.atranscription(**arguments), read)

    async def close_connections(self) -> None:
        """Close the connections that litellm keeps open; litellm's own function misses connections to OpenAI."""
        if self._imported is not None:
            transports = (await self.load_litellm()).transports
            while transports:
                await transports.pop().aclose()

    async def load_litellm(self) -> ImportedLibrary:
        """Begin the import of litellm if it has not begun, wait for its end, and return the library."""
        self.warm_up()
        assert self._imported is not None
        if self._imported.done():
            return self._imported.result()
        # The import is shielded, because a cancelled call must not cancel the import that other calls wait for.
        return await asyncio.shield(asyncio.wrap_future(self._imported))

    async def _call_once(self, site: CallSite, call: Awaitable[Any], read: Callable[[Any], Answer]) -> Answer:
        with observe_exchange(self._answer_limit()) as exchange:
            try:
                return read(await call)
            # litellm raises its own errors, those of openai, httpx and aiohttp, and KeyErrors for unexpected answers.
            except Exception as error:  # noqa: BLE001
                failure = classify_failure(site, collect_evidence(error, exchange), datetime.now(UTC))
        # The failure is raised outside of the handler, because its exception context would hold the prompt and the key.
        raise failure


def _import_litellm() -> ImportedLibrary:
    """Import litellm so that it logs nothing, needs no network and does not retry.

    The import is inside a function because it takes three seconds and 190 MB, which only a process that calls models
    should pay. The environment variables are set here, and only here, because litellm reads them while it is imported
    and offers no other way.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with collector_off():
        with _defer_model_validators(), _defer_encodings():
            litellm = importlib.import_module("litellm")
        for name, switch in _SWITCHES.items():
            setattr(litellm, name, switch)
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # litellm logs prompts and error texts
        handler = importlib.import_module("litellm.llms.custom_httpx.http_handler").AsyncHTTPHandler
        transports = _observe_transports(handler)
        return ImportedLibrary(litellm, build_translator(litellm), handler(), transports)


@contextmanager
def _defer_model_validators() -> Iterator[None]:
    """Let pydantic models that are defined within the block build their validators at their first use.

    litellm defines 700 models and a call uses a dozen: this saves an eighth of the CPU time of the import, and 19 MB.
    ``defer_build`` is pydantic's own setting, and models inherit it from their base. A model that another thread
    defines meanwhile is also built at its first use, without any other effect.
    """
    before = BaseModel.model_config
    BaseModel.model_config = ConfigDict(**before, defer_build=True)
    try:
        yield
    finally:
        BaseModel.model_config = before


@contextmanager
def _defer_encodings() -> Iterator[None]:
    """Let tokenizer encodings that are requested within the block be read at their first use.

    litellm reads an encoding of 100,000 tokens while it is imported, which takes a twelfth of the import's CPU time.
    Only litellm's token counts need it, for providers that report none; Maestro has its own estimate.
    """
    tiktoken: Any = importlib.import_module("tiktoken")
    read: Callable[[str], Any] = tiktoken.get_encoding

    class UnreadEncoding(tiktoken.Encoding):  # type: ignore[misc]  # litellm checks for this base class
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, attribute: str) -> Any:
            if "_core_bpe" in vars(self):
                raise AttributeError(attribute)
            self.__dict__.update(vars(read(self.name)))
            return getattr(self, attribute)

    tiktoken.get_encoding = UnreadEncoding
    try:
        yield
    finally:
        tiktoken.get_encoding = read


def _observe_transports(handler: Any) -> Transports:
    """Make every HTTP client that litellm builds from now on use an ``ObservedTransport``; return all transports.

    litellm has no supported hook for all providers, so the method that builds its transports is replaced. The set is
    stored on the patched class, so that a second client in the same process finds it.
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


@dataclass(slots=True)
class LiteLLMClient:
    """Calls an account once over HTTP; Temporal retries, and the middleware ``Failover`` chooses another account.

    Use one ``library`` per process; the code that creates the library also closes its connections.
    """

    load_image: LoadImage
    models: ModelTable = field(default_factory=build_model_table)
    library: LiteLLMLibrary = field(default_factory=LiteLLMLibrary)
    _: KW_ONLY
    read_timeout: timedelta = READ_TIMEOUT

    async def ask(self, account: Account, request: LLMRequest) -> LLMResponse:
        """Answer with exactly one HTTP request; raises an ``LLMFailure`` that quotes no prompt and no answer."""
        account = replace(account, model=request.model or account.model)
        chat = await self._chat_request(account, request)
        started = time.monotonic()

        def parse_answer(answer: Any) -> LLMResponse:
            return self._to_response(account, request, answer, timedelta(seconds=time.monotonic() - started))

        site = CallSite(account.provider, account.name, account.model)
        return await self.library.complete_chat(site, chat, parse_answer)

    async def _chat_request(self, account: Account, request: LLMRequest) -> ChatRequest:
        """Return the request in OpenAI's chat format, which litellm translates."""
        images = [
            [await asyncio.to_thread(self._data_url, image) for image in message.images] for message in request.messages
        ]
        # Without ``num_ctx``, Ollama silently truncates a prompt to its default context window.
        window = {"num_ctx": self.models.context_window(_table_name(account))} if account.provider == OLLAMA else {}
        return ChatRequest(
            model=model_name(account),
            messages=chat_format.chat_messages(account.provider, request, images),
            parameters={"max_tokens": request.max_output_tokens, **chat_format.offer_tools(account.provider, request)},
            options=window,
            api_key=choose_key_to_send(account),
            base_url=base_url(account),
            timeout=self.read_timeout.total_seconds(),
        )

    def _data_url(self, image: ImageRef) -> str:
        return f"data:{image.content_type};base64,{base64.b64encode(self.load_image(image)).decode('ascii')}"

    def _to_response(self, account: Account, request: LLMRequest, answer: Any, duration: timedelta) -> LLMResponse:
        choice, usage = answer.choices[0], chat_format.read_usage(answer)
        # The model's name enters workflow histories, so it must not carry any other text of a provider.
        model = str(answer.model or "").removeprefix("ollama_chat/")
        return LLMResponse(
            content=storable_text(choice.message.content or ""),
            tool_calls=() if request.final else tuple(chat_format.read_tool_calls(choice.message, request.key.number)),
            model=model if _NAME.fullmatch(model) else account.model,
            provider=account.provider,
            account=account.name,
            cost_usd=self.models.compute_cost(_table_name(account), usage),
            duration_ms=round(duration / timedelta(milliseconds=1)),
            finish_reason=str(choice.finish_reason or ""),
            **usage.model_dump(),
        )


@dataclass(slots=True)
class AccountTransport:
    """Calls the chosen account once: over HTTP, through the command ``claude`` of a subscription, or the demo model."""

    directory: AccountDirectory
    library: LiteLLMLibrary
    _: KW_ONLY
    http: AccountClient
    command: AccountClient
    demo: AccountClient

    async def wait_until_ready(self, request: LLMRequest) -> None:
        """Return when the request can be sent at once; a request over HTTP waits for the import of litellm."""
        account = self.directory.find(request.account)
        if account is not None and self._account_client(account) is self.http:
            await self.library.load_litellm()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer the request; raises ``NoAccount`` when its account was removed after it was chosen."""
        account = self.directory.find(request.account)
        if account is None:
            raise NoAccount(f"This process has no account {request.account!r}; see `maestro accounts list`.")
        return await self._account_client(account).ask(account, request)

    def _account_client(self, account: Account) -> AccountClient:
        if account.provider == DEMO:
            return self.demo
        return self.command if account.type is AccountType.CLI else self.http


def _table_name(account: Account) -> str:
    """Return ``provider/model``, the form of names in price and window tables."""
    return f"{account.provider}/{account.model}"
