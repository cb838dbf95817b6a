"""Calls every provider at a local server in a process that may not reach anything else, and tells what it tried.

``python -m tests.support.llm_no_egress <port>`` prints ``{"answers": [...], "refused": [...]}``. It runs in a process
of its own because what is watched is the import of litellm too, and because an audit hook cannot be taken away.
"""

import asyncio
import json
import sys

from pydantic import SecretStr

from maestro.domain.llm_errors import LLMFailure
from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.protocols import Account
from tests.support.llm_requests import KEY, MODELS, request_of
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
    """Call each provider with its usual model, and some with one whose name makes litellm think of Llama."""
    models = [*MODELS.items(), ("ollama", "llama-3-8b"), ("openai", "llama-2-7b")]
    accounts = [
        Account("main", provider, model, api_key=SecretStr(KEY), base_url=server.base_url(provider))
        for provider, model in models
    ]
    answers = []
    for account in accounts:
        client = LiteLLMClient(lambda _: b"")
        try:
            answers.append((await client.ask(account, request_of())).content)
        except LLMFailure as failure:
            answers.append(str(failure))
        await client.close()
    return answers


def main(port: int) -> None:
    """Watch, call, tell."""
    hook, server = OnlyLocal(), LLMServer()
    server.port = port
    sys.addaudithook(hook)
    answers = asyncio.run(call_everybody(server))
    print(json.dumps({"answers": answers, "refused": hook.refused}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
