"""What Maestro uses of litellm's insides: that it is there, that it is all a call touches, and what happens without.

When litellm moves, the first tests here say what broke; ``docs/adr/0034-litellm-translates-and-nothing-more.md`` says
what to do.
"""

import asyncio
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from structlog.testing import capture_logs

from maestro.domain.llm.prompts import LLMRequest
from maestro.llm.litellm_client import LiteLLMClient, LiteLLMLibrary
from maestro.llm.translation import PROVIDERS, ChatRequest, Translator, build_translator
from tests.support.llm_requests import PICTURE, SAID, SEARCH, account_at, request_of
from tests.support.llm_server import LLMServer

# One worker imports the library once for all of these.
pytestmark = pytest.mark.xdist_group("litellm")

USED = {
    "litellm": ("get_llm_provider", "acompletion", "atranscription", "model_cost", "register_model"),
    "litellm.main": ("responses_api_bridge_check",),
    "litellm.utils": ("ProviderConfigManager",),
    "litellm.types.utils": ("LlmProviders", "ModelResponse", "Usage"),
    "litellm.llms.vertex_ai.gemini.transformation": ("sync_transform_request_body",),
    "litellm.anthropic_beta_headers_manager": ("update_request_with_filtered_beta",),
    "litellm.llms.custom_httpx.http_handler": ("AsyncHTTPHandler",),
}
"""The names that ``litellm_client.py`` and ``translation.py`` take from each module."""

METHODS = {
    "get_supported_openai_params": {"model"},
    "map_openai_params": {"non_default_params", "optional_params", "model", "drop_params"},
    "validate_environment": {
        "headers",
        "model",
        "messages",
        "optional_params",
        "litellm_params",
        "api_key",
        "api_base",
    },
    "transform_request": {"model", "messages", "optional_params", "litellm_params", "headers"},
    "transform_response": {
        *("model", "raw_response", "model_response", "logging_obj", "request_data", "messages", "optional_params"),
        *("litellm_params", "encoding", "api_key"),
    },
}
"""What Maestro calls of litellm's description of a provider, and the arguments it gives."""

NOT_OURS = (
    *("litellm/main.py", "litellm/router", "litellm/proxy/", "litellm/caching/", "litellm/integrations/"),
    *("litellm/litellm_core_utils/litellm_logging.py", "litellm/litellm_core_utils/logging_worker.py"),
    *("litellm/cost_calculator.py", "litellm/budget_manager.py", "litellm/litellm_core_utils/exception_mapping"),
    *("litellm/litellm_core_utils/get_model_cost_map.py", "litellm/rust_bridge/", "site-packages/openai/"),
)
"""What Maestro does itself, or does without: no file that contains one of these may run in a call."""


@pytest.fixture
async def modules(litellm: LiteLLMClient) -> Any:
    """The imported library."""
    await litellm.library.load_litellm()
    return importlib.import_module("litellm")


def chat(name: str, model: str, base_url: str | None = "", *, tools: bool = False) -> ChatRequest:
    """A request to some model."""
    parameters: dict[str, Any] = {"tools": []} if tools else {}
    base = PROVIDERS[name].base_url if base_url == "" else base_url
    return ChatRequest(f"{name}/{model}", [], parameters, {}, "key", base, timeout=1)


# What is used


@pytest.mark.parametrize("module", USED)
async def test_litellm_has_what_maestro_takes_from_it(modules: Any, module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in USED[module] if not hasattr(found, name)]
    assert missing == [], f"litellm has moved: {module} no longer has {missing}"


@pytest.mark.parametrize("prefix", PROVIDERS)
async def test_the_description_of_a_provider_takes_what_maestro_gives(modules: Any, prefix: str) -> None:
    utils, types = importlib.import_module("litellm.utils"), importlib.import_module("litellm.types.utils")
    config = utils.ProviderConfigManager.get_provider_chat_config(model="model", provider=types.LlmProviders(prefix))
    assert config is not None, f"litellm has moved: it has no description of {prefix}"
    for method, given in METHODS.items():
        unknown = given - inspect.signature(getattr(config, method)).parameters.keys()
        assert unknown == set(), f"litellm has moved: {type(config).__name__}.{method} takes no {sorted(unknown)}"


async def test_every_provider_that_maestro_names_is_translated(modules: Any) -> None:
    with capture_logs() as logs:
        translator = build_translator(modules)
    assert translator is not None, f"litellm has moved: {logs}"
    assert logs == []
    for prefix, provider in PROVIDERS.items():
        translation = translator.find_translation(chat(prefix, "model"))
        assert translation is not None, f"litellm has moved: {prefix} is not translated"
        assert translation._url.startswith(provider.base_url)


@pytest.mark.parametrize(
    ("name", "model", "base_url", "tools", "translated"),
    [
        ("openai", "gpt-5.4", "", False, True),
        ("openai", "gpt-5.4", "", True, False),
        ("openai", "gpt-5.4", "http://own:1/v1", True, True),
        ("openai", "o1-pro", "", False, False),
        ("openrouter", "openrouter/auto", "", True, True),
        ("mistral", "mistral-small", "http://own:1/v1", False, False),
        ("groq", "llama-3.3-70b", None, False, False),
    ],
)
async def test_what_only_its_entry_point_can_do_is_left_to_it(
    modules: Any, name: str, model: str, base_url: str | None, tools: bool, translated: bool
) -> None:
    """OpenAI answers some models on ``/responses`` alone, some with tools; of others litellm alone has the address."""
    found = Translator(modules).find_translation(chat(name, model, base_url, tools=tools))
    assert (found is not None) is translated


# What a call touches


@contextmanager
def executed(files: set[str]) -> Iterator[None]:
    """Note the files whose functions this thread calls."""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def with_tool(request: LLMRequest) -> LLMRequest:
    """A request that offers a tool."""
    return request.model_copy(update={"tools": (SEARCH,)})


async def test_a_call_runs_nothing_of_litellm_that_maestro_does_itself(
    litellm: LiteLLMClient, server: LLMServer, provider: str
) -> None:
    account, files = account_at(server, provider), set[str]()
    await litellm.ask(account, with_tool(request_of()))
    with executed(files):
        response = await litellm.ask(account, with_tool(request_of()))
    assert response.content == f"answer to: {SAID}"
    assert any("litellm/llms/" in file for file in files), "the trace saw nothing"
    assert sorted(file for file in files if any(part in file for part in NOT_OURS)) == []


async def test_a_call_is_one_file_of_each_kind(litellm: LiteLLMClient, server: LLMServer) -> None:
    """The files of Maestro that one plain call runs; each more costs the reader and the processor."""
    account, files = account_at(server, "openai"), set[str]()
    await litellm.ask(account, request_of())
    with executed(files):
        await litellm.ask(account, request_of())
    ours = sorted(file.rpartition("/maestro/llm/")[2] for file in files if "/maestro/llm/" in file)
    assert ours == ["chat_format.py", "litellm_client.py", "translation.py", "wire.py"]


async def test_a_call_takes_no_thread_and_no_task_but_the_one_that_writes_to_the_socket(
    litellm: LiteLLMClient, server: LLMServer, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, loop = account_at(server, provider), asyncio.get_running_loop()
    await litellm.ask(account, request_of())
    tasks: list[str] = []
    hops: list[object] = []
    in_executor = loop.run_in_executor

    def noted(_: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
        tasks.append(work.__qualname__)
        return asyncio.Task(work, loop=loop, **options)

    def hopped(pool: Any, work: Any, *arguments: Any) -> Any:
        hops.append(work)
        return in_executor(pool, work, *arguments)

    monkeypatch.setattr(loop, "run_in_executor", hopped)
    loop.set_task_factory(noted)
    try:
        await litellm.ask(account, request_of())
    finally:
        loop.set_task_factory(None)
    assert (tasks, hops) == (["ClientRequest.write_bytes"], [])


# Without it


async def test_a_litellm_that_has_moved_still_answers_and_says_so(
    modules: Any, server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("litellm.anthropic_beta_headers_manager.update_request_with_filtered_beta")
    client = LiteLLMClient(lambda _: PICTURE, library=LiteLLMLibrary())
    with capture_logs() as logs:
        response = await client.ask(account_at(server, "anthropic"), request_of())
    await client.library.close_connections()
    assert response.content == f"answer to: {SAID}"
    [line] = logs
    assert (line["event"], line["error"]) == ("llm.translation_unavailable", "AttributeError")
    assert "install the release of litellm that Maestro requires" in line["effect"]


async def test_a_provider_that_only_litellm_knows_is_asked_through_its_entry_point(
    litellm: LiteLLMClient, server: LLMServer
) -> None:
    account = account_at(server, "openai")
    mistral = type(account)("other", "mistral", "mistral-small", api_key=account.api_key, base_url=account.base_url)
    response = await litellm.ask(mistral, request_of())
    assert (response.content, response.provider) == (f"answer to: {SAID}", "mistral")
    assert len(server.requests) == 1
