"""Translates chat requests and answers for providers by litellm's transforms alone, and checks a key free of charge."""

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
import structlog

from maestro.llm.protocols import Account

NO_KEY = "no-key"
"""The key sent for accounts without a key: otherwise litellm could send a key from the environment."""

Json = dict[str, Any]

log = structlog.get_logger(__name__)

SLOWER = "every model call takes several times the CPU time; install the release of litellm that Maestro requires"


@dataclass(frozen=True, slots=True)
class Provider:
    """litellm's name of a provider, its public address in litellm's form, and the paths of requests.

    ``key_path`` is the path of a free request that needs a key, ``refusals`` are the HTTP statuses for a wrong key.
    ``tail`` is removed from the end of a configured address, because litellm appends it again.
    """

    prefix: str
    base_url: str
    path: str
    key_path: str
    key_header: Callable[[str], Mapping[str, str]] = lambda key: {"Authorization": f"Bearer {key}"} if key else {}
    refusals: tuple[int, ...] = (401, 403)
    tail: str = ""


# Every provider has an explicit address: without one litellm reads OPENAI_BASE_URL and similar variables.
_PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        "anthropic",
        "https://api.anthropic.com",
        "/v1/messages",
        "/v1/models",
        lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
        tail="/v1",
    ),
    "openai": Provider("openai", "https://api.openai.com/v1", "/chat/completions", "/models"),
    "gemini": Provider(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        "/models/{model}:generateContent",
        "/models",
        lambda key: {"x-goog-api-key": key},
        (400, 401, 403),  # Gemini answers 400 to an unknown key
    ),
    # OpenRouter's list of models needs no key, so the limits of the key are requested.
    "openrouter": Provider("openrouter", "https://openrouter.ai/api/v1", "/chat/completions", "/key"),
    # litellm's prefix `ollama/` flattens a conversation into one prompt; `ollama_chat/` keeps its messages.
    "ollama": Provider("ollama_chat", "http://127.0.0.1:11434", "/api/chat", "/api/tags", tail="/v1"),
}

PROVIDERS: Mapping[str, Provider] = {provider.prefix: provider for provider in _PROVIDERS.values()}
"""The providers that Maestro knows by name, under litellm's names."""


def model_name(account: Account) -> str:
    """Return litellm's name for the account's model: litellm's prefix of the provider, and the model."""
    known = _PROVIDERS.get(account.provider)
    prefix = known.prefix if known else account.provider
    return f"{prefix}/{account.model}"


def base_url(account: Account) -> str | None:
    """Return the address for the account's calls; None if the provider is unknown and litellm chooses the address."""
    known = _PROVIDERS.get(account.provider)
    own = account.base_url.rstrip("/")
    if known is None:
        return own or None
    return own.removesuffix(known.tail) if own else known.base_url


def choose_key_to_send(account: Account) -> str:
    """Return the key to send, ``NO_KEY`` for an account without one."""
    return account.api_key.get_secret_value() or NO_KEY


class UnsuccessfulStatus(Exception):
    """The error for an answer with an error status; the observed exchange has the answer's headers and body."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request in OpenAI's format; ``model`` is litellm's name of the model, ``provider/model``.

    ``options`` are parameters of the provider; ``timeout`` is in seconds, for each read.
    """

    model: str
    messages: list[Json]
    parameters: Json
    options: Json
    api_key: str
    base_url: str | None
    timeout: float

    def build_arguments(self) -> Json:
        """Return the arguments for litellm's entry point ``acompletion``."""
        return {
            "model": self.model,
            "messages": self.messages,
            **self.parameters,
            **self.options,
            "api_key": self.api_key,
            "api_base": self.base_url,
            "timeout": self.timeout,
            "max_retries": 0,
            "num_retries": 0,
            "stream": False,
        }


@dataclass(slots=True)
class NullCallLogger:
    """A logging object that stores nothing; litellm's response parsers require one."""

    optional_params: Json

    def post_call(self, *_: Any, **__: Any) -> None:
        """Ignore the body of an answer, because it may contain prompts."""


def build_translator(litellm: Any) -> "Translator | None":
    """Return the translator, after a test of every provider; None if litellm's internals have changed.

    The test also loads the modules that litellm imports on demand, here in the thread of the import. Without a
    translator, requests go through litellm's entry point, at several times the CPU time; one warning is logged.
    """
    try:
        translator = Translator(litellm)
        answers: Mapping[str, Json] = json.loads(Path(__file__).with_name("rehearsal.json").read_text(encoding="utf-8"))
        for prefix, provider in PROVIDERS.items():
            translator.check_provider(prefix, provider.base_url, answers[prefix])
    # Another release of litellm may raise any exception here.
    except Exception as error:  # noqa: BLE001
        log.warning("llm.translation_unavailable", error=type(error).__name__, effect=SLOWER)
        return None
    return translator


class Translator:
    """Translates requests for the providers that Maestro knows by name."""

    def __init__(self, litellm: Any) -> None:
        """Prepare the parts of ``litellm``; raises ``AttributeError`` or ``ImportError`` if its internals changed."""
        utils, types = importlib.import_module("litellm.utils"), importlib.import_module("litellm.types.utils")
        gemini = importlib.import_module("litellm.llms.vertex_ai.gemini.transformation")
        betas = importlib.import_module("litellm.anthropic_beta_headers_manager")
        self.new_response: Callable[[], Any] = types.ModelResponse
        self.new_usage: Callable[[], Any] = types.Usage
        self.gemini_body: Callable[..., Json] = gemini.sync_transform_request_body
        self.with_allowed_betas: Callable[..., tuple[Json, Json]] = betas.update_request_with_filtered_beta
        self._litellm = litellm
        self._split: Callable[..., tuple[str, str, str, str]] = litellm.get_llm_provider
        self._config: Callable[..., Any] = utils.ProviderConfigManager.get_provider_chat_config
        self._provider_type: Callable[[str], Any] = types.LlmProviders
        self._bridged: Callable[..., tuple[Json, str]] = importlib.import_module(
            "litellm.main"
        ).responses_api_bridge_check
        self._translation_of = lru_cache(256)(self._build_translation)

    def find_translation(self, chat: ChatRequest) -> "Translation | None":
        """Return the translation for a request; None if only litellm's entry point can send the request.

        Only the entry point knows the addresses and keys of providers that Maestro does not know by name, and the other
        API (``/responses``) of some OpenAI models.
        """
        return self._translation_of(chat.model, chat.base_url, "tools" in chat.parameters)

    def check_provider(self, prefix: str, base_url: str, sample_answer: Json) -> None:
        """Translate a sample request and a sample answer of a provider as a test; nothing is sent."""
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
        tool = {"type": "function", "function": {"name": "tool", "description": "", "parameters": {"type": "object"}}}
        parameters = {"max_tokens": 1, "tools": [tool]}
        chat = ChatRequest(f"{prefix}/model", messages, parameters, {}, NO_KEY, base_url, timeout=1)
        translation = self.find_translation(chat)
        if translation is None:
            raise LookupError(prefix)
        answer = httpx.Response(200, json=sample_answer)
        parsed = translation.parse_answer(chat, translation.translate_request(chat), answer)
        if parsed.choices[0].message.content != "hello":
            raise ValueError(prefix)

    def _build_translation(self, name: str, base_url: str | None, with_tools: bool) -> "Translation | None":
        if name.startswith("gemini/gemini-") and name not in self._litellm.model_cost:
            # For a model that is not in its table, litellm would send the system message as a user's message.
            facts = {"litellm_provider": "gemini", "mode": "chat", "supports_system_messages": True}
            self._litellm.register_model({name: facts})
        model, prefix, _, _ = self._split(model=name, api_base=base_url)
        provider = PROVIDERS.get(prefix)
        if provider is None or base_url is None:
            return None
        tools = [{"type": "function"}] if with_tools else None
        facts, _ = self._bridged(model=model, custom_llm_provider=prefix, tools=tools, api_base=base_url)
        config = self._config(model=model, provider=self._provider_type(prefix))
        if facts.get("mode") == "responses" or config is None:
            return None
        kind = _KINDS.get(prefix, Translation)
        return kind(self, config, model, base_url.removesuffix(provider.path) + provider.path.format(model=model))


@dataclass(frozen=True, slots=True)
class TranslatedRequest:
    """A request in its provider's format.

    ``parameters`` are the provider's parameters, ``scratch`` are litellm's notes on the request; parsing the answer
    needs both.
    """

    headers: Json
    body: Json
    parameters: Json
    scratch: Json


class Translation:
    """The translation for one model: litellm's description of its API, and the address of its requests."""

    def __init__(self, translator: Translator, config: Any, model: str, url: str) -> None:
        self._translator = translator
        self._config = config
        self._model = model
        self._url = url
        self._supported = frozenset(config.get_supported_openai_params(model=model))

    async def send_request(self, chat: ChatRequest, client: httpx.AsyncClient) -> Any:
        """Send the one request and return litellm's answer; raises ``UnsuccessfulStatus`` for an error status."""
        translated = self.translate_request(chat)
        content = json.dumps(translated.body).encode()
        request = client.build_request(
            "POST", self._url, headers=translated.headers, content=content, timeout=chat.timeout
        )
        request.headers.setdefault("content-type", "application/json")
        response = await client.send(request, follow_redirects=False)
        if not response.is_success:
            raise UnsuccessfulStatus
        return self.parse_answer(chat, translated, response)

    def translate_request(self, chat: ChatRequest) -> TranslatedRequest:
        """Return a request in the provider's format, without the parameters that the model does not support."""
        supported = {name: value for name, value in chat.parameters.items() if name in self._supported}
        parameters: Json = self._config.map_openai_params(
            non_default_params=supported, optional_params={}, model=self._model, drop_params=True
        )
        parameters, scratch = {**parameters, **chat.options}, Json()
        headers, body = self._provider_request(chat, parameters, scratch)
        return TranslatedRequest(headers, body, parameters, scratch)

    def parse_answer(self, chat: ChatRequest, translated: TranslatedRequest, response: httpx.Response) -> Any:
        """Return the provider's answer as litellm's answer object."""
        answer = self._translator.new_response()
        answer.usage = self._translator.new_usage()
        return self._config.transform_response(
            model=self._model,
            raw_response=response,
            model_response=answer,
            logging_obj=NullCallLogger(translated.parameters),
            request_data=translated.body,
            messages=chat.messages,
            optional_params=translated.parameters,
            litellm_params=translated.scratch,
            encoding=None,
            api_key=chat.api_key,
        )

    def _provider_request(self, chat: ChatRequest, parameters: Json, scratch: Json) -> tuple[Json, Json]:
        """Return the headers and the body; litellm writes notes on the request into ``scratch``."""
        extra: Json = parameters.pop("extra_body", None) or {}
        headers = self._request_headers(chat, chat.api_key, parameters, scratch)
        body = self._config.transform_request(
            model=self._model,
            messages=chat.messages,
            optional_params=parameters,
            litellm_params=scratch,
            headers=headers,
        )
        return headers, {**body, **extra}

    def _request_headers(self, chat: ChatRequest, key: Any, parameters: Json, scratch: Json) -> Json:
        headers: Json = self._config.validate_environment(
            headers={},
            model=self._model,
            messages=chat.messages,
            optional_params=parameters,
            litellm_params=scratch,
            api_key=key,
            api_base=chat.base_url,
        )
        return headers


class AnthropicTranslation(Translation):
    """Anthropic's format, in which headers name the beta features that a request uses."""

    def _provider_request(self, chat: ChatRequest, parameters: Json, scratch: Json) -> tuple[Json, Json]:
        headers, body = super()._provider_request(chat, parameters, scratch)
        return self._translator.with_allowed_betas(headers=headers, request_data=body, provider="anthropic")


class GeminiTranslation(Translation):
    """Gemini's format, for which litellm builds the body in a separate function."""

    def _provider_request(self, chat: ChatRequest, parameters: Json, scratch: Json) -> tuple[Json, Json]:
        headers = self._request_headers(chat, {"x-goog-api-key": chat.api_key}, parameters, scratch)
        body = self._translator.gemini_body(
            gemini_api_key=chat.api_key,
            messages=chat.messages,
            api_base=chat.base_url,
            model=self._model,
            client=None,
            timeout=chat.timeout,
            extra_headers=None,
            optional_params=parameters,
            logging_obj=NullCallLogger(parameters),
            custom_llm_provider="gemini",
            litellm_params=scratch,
            vertex_project=None,
            vertex_location=None,
            vertex_auth_header=None,
        )
        return headers, body


_KINDS: Mapping[str, type[Translation]] = {"anthropic": AnthropicTranslation, "gemini": GeminiTranslation}
"""Translation classes by litellm's provider name, for providers that need more than litellm's generic transform."""


class KeyStatus(StrEnum):
    """The result of a key check, as far as the provider's answer shows it."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class KeyCheck:
    """The outcome of a key check; ``detail`` is the error for a bad key, ``models`` the installed models (Ollama)."""

    status: KeyStatus
    detail: str = ""
    models: tuple[str, ...] = ()


async def check_key(account: Account, seconds: float) -> KeyCheck:
    """Check a key; never raises. The key is sent only to the address used for calls, and redirects are not followed."""
    provider, address = _PROVIDERS.get(account.provider), base_url(account)
    if provider is None or address is None:
        return KeyCheck(KeyStatus.UNKNOWN, "Maestro has no free request that checks a key of this provider")
    try:
        headers = provider.key_header(account.api_key.get_secret_value())
        async with httpx.AsyncClient(timeout=seconds) as http:
            answer = await http.get(f"{address}{provider.key_path}", headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        # The text of an error may quote the header with the key, so only the error's class is reported.
        return KeyCheck(KeyStatus.UNREACHABLE, type(error).__name__)
    if answer.status_code in provider.refusals:
        return KeyCheck(KeyStatus.REFUSED, f"HTTP {answer.status_code}")
    if not answer.is_success:
        return KeyCheck(KeyStatus.UNKNOWN, f"HTTP {answer.status_code}")
    try:
        models = tuple(str(model["name"]) for model in answer.json()["models"] if "name" in model)
    except (ValueError, KeyError, TypeError):
        models = ()  # only Ollama's answer lists its installed models
    return KeyCheck(KeyStatus.ACCEPTED, models=models)
