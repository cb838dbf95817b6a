"""Calls every provider at a local server in a process that may not reach anything else, and tells what it tried.

``python -m tests.support.llm_no_egress <port>`` prints ``{"answers": [...], "refused": [...]}``; with a second argument
it logs from that level up, as Maestro does. It runs in a process
of its own because what is watched is the import of litellm too, and because an audit hook cannot be taken away.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable

from pydantic import SecretStr

from maestro.domain.llm.calls import CallSite, LLMFailure
from maestro.domain.llm.prompts import ImageRef, LLMRequest, LLMResponse, PromptMessage, Role, ToolCall
from maestro.llm.litellm_client import LiteLLMClient, LiteLLMLibrary
from maestro.llm.protocols import Account
from maestro.observability.logs import configure_logs
from tests.support.llm_requests import KEY, MODELS, PICTURE, SEARCH, request_of, response_of
from tests.support.llm_server import LLMServer

LOCAL = ("127.0.0.1", "::1", "localhost")
WATCHED = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request")


class OnlyLocal:
    """An audit hook that refuses every connection and look-up that leaves this machine."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in WATCHED:
            return
        target = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        host = target[0] if isinstance(target, tuple) else target
        if isinstance(target, str) and event == "socket.connect":
            return  # a Unix socket
        if host not in LOCAL:
            self.refused.append(f"{event} {host!r}")
            raise ConnectionRefusedError(f"not local: {host!r}")


async def call_everybody(server: LLMServer) -> list[str]:
    """Call each provider with its usual model, and some with one whose name makes litellm think of Llama.

    Each is shown a picture, offered a tool and then told its result; in the end a voice is transcribed.
    """
    library = LiteLLMLibrary()
    client = LiteLLMClient(lambda _: PICTURE, library=library)
    models = [*MODELS.items(), ("ollama", "llama-3-8b"), ("openai", "llama-2-7b")]
    answers = []
    for provider, model in models:
        account = Account("main", provider, model, api_key=SecretStr(KEY), base_url=server.base_url(provider))
        answers += [await answer(client.ask(account, request)) for request in conversation()]
    answers.append(await answer(transcribed(library, server)))
    await library.close_connections()
    return answers


def conversation() -> tuple[LLMRequest, LLMRequest]:
    """Two rounds, marked for the cache."""
    first = request_of(images=(ImageRef(digest="d", content_type="image/png"),)).model_copy(update={"tools": (SEARCH,)})
    system, user = first.messages
    call = ToolCall(id="call_1_0", name=SEARCH.name, arguments='{"query": "SOL"}')
    turns = (
        system.model_copy(update={"cache": True}),
        user,
        PromptMessage(role=Role.ASSISTANT, content="", tool_calls=(call,)),
        PromptMessage(role=Role.TOOL, content="see http://192.0.2.1/a.png", call_id=call.id, tool=call.name),
    )
    return first, first.model_copy(update={"messages": turns})


async def transcribed(library: LiteLLMLibrary, server: LLMServer) -> LLMResponse:
    """Have a voice transcribed."""
    arguments = {
        "model": "openai/whisper-1",
        "file": ("voice.ogg", b"OggS", "audio/ogg"),
        "api_key": KEY,
        "api_base": server.base_url("openai"),
        "max_retries": 0,
    }
    site = CallSite("openai", "main", "whisper-1")
    return await library.transcribe_recording(site, arguments, lambda answer: response_of(answer.text))


async def answer(call: Awaitable[LLMResponse]) -> str:
    """Return what was answered, or the text of the failure."""
    try:
        return (await call).content
    except LLMFailure as failure:
        return str(failure)


def main(port: int, *levels: str) -> None:
    """Watch, call, tell."""
    for level in levels:
        configure_logs(level, "text", str)
    hook, server = OnlyLocal(), LLMServer()
    server.port = port
    sys.addaudithook(hook)
    answers = asyncio.run(call_everybody(server))
    print(json.dumps({"answers": answers, "refused": hook.refused}))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
