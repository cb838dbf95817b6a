"""Peers with an HTTP API: LangGraph's local server and Hermes Agent."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx

from benchmarks.model import Model
from benchmarks.peers.peer import (
    Peer,
    PeerConversation,
    PeerProcesses,
    RequestConversation,
    open_client,
    peer_failure_from,
    question_text,
)
from tests.support.ports import free_port

GRAPH = Path(__file__).with_name("graph.py")
CONCURRENT_RUNS = 50
"""The limit of LangGraph's server on concurrent runs; its default of 10 would make users wait for each other."""
KEY = "2f7a1c9e5b8d4063a1e7c2b9d4f60853"
"""The API key of Hermes, which refuses short ones."""


class GraphConversation(RequestConversation):
    """A thread of LangGraph's server, which queues the runs of a thread."""

    @property
    def _thread(self) -> str:
        return f"/threads/{uuid5(NAMESPACE_URL, self.name)}"

    async def request_answer(self, key: str) -> str:
        """Run the graph on the thread, and wait for it."""
        body = {
            "assistant_id": "chat",
            "input": {"messages": [{"role": "user", "content": question_text(key)}]},
            "if_not_exists": "create",
            "multitask_strategy": "enqueue",
        }
        response = await self.http.post(f"{self._thread}/runs/wait", json=body)
        return _answers(response.raise_for_status().json())[-1]

    async def read_answers(self) -> Sequence[str]:
        """Read the state of the thread."""
        response = await self.http.get(f"{self._thread}/state")
        return _answers(response.raise_for_status().json()["values"])


def _answers(values: Mapping[str, Any]) -> list[str]:
    return [str(message["content"]) for message in values.get("messages", ()) if message["type"] == "ai"]


class LangGraph(Peer):
    """LangGraph's server for development: threads, runs and checkpoints in memory, saved to files periodically."""

    name = "LangGraph"
    requirements = (
        "langgraph-api==0.16.7",
        "langgraph-cli[inmem]==0.4.40",
        "langchain-openai==1.7.3",
        "langchain-core==1.7.2",  # named because pip needs minutes to find it
    )
    command = f"langgraph dev --no-browser --no-reload --n-jobs-per-worker {CONCURRENT_RUNS}"
    access = "HTTP: a run on a thread, `enqueue` for quick messages"

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        super().__init__(folder, programs, model)
        self._port = free_port()
        (folder / "graph.py").write_text(GRAPH.read_text())
        (folder / "langgraph.json").write_text(
            json.dumps({"dependencies": ["."], "graphs": {"chat": "./graph.py:graph"}})
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[PeerProcesses]:
        """Run the server."""
        command = (self.program("langgraph"), *self.command.split()[1:], "--port", str(self._port))
        url = f"http://127.0.0.1:{self._port}"
        quiet = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"}
        async with self.process(*command, **quiet) as process, open_client(url) as http:

            async def answers() -> bool:
                return (await http.get("/ok")).is_success

            async def open_conversation(name: str) -> PeerConversation:
                return GraphConversation(name, url)

            await self.wait_until_ready(process, answers)
            yield PeerProcesses((process.pid,), open_conversation)


class HermesConversation(RequestConversation):
    """A session of the API of Hermes."""

    async def open(self) -> None:
        """Create the session; raises ``PeerFailure``."""
        with peer_failure_from("create a session", httpx.HTTPError):
            (await self.http.post("/api/sessions", json={"id": self.name})).raise_for_status()

    async def request_answer(self, key: str) -> str:
        """Chat with the session, and wait for the answer."""
        response = await self.http.post(f"/api/sessions/{self.name}/chat", json={"message": question_text(key)})
        return str(response.raise_for_status().json()["message"]["content"])

    async def read_answers(self) -> Sequence[str]:
        """Read the messages of the session."""
        response = await self.http.get(f"/api/sessions/{self.name}/messages")
        messages = response.raise_for_status().json()["data"]
        return [str(message["content"]) for message in messages if message["role"] == "assistant"]


class Hermes(Peer):
    """A personal agent with a gateway for chat platforms, and sessions in SQLite."""

    name = "Hermes Agent"
    requirements = ("hermes-agent==0.19.0", "aiohttp==3.14.1")
    command = "hermes gateway run"
    access = "HTTP: a session of its API server, `max_concurrent_runs: 0` (no limit)"

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        super().__init__(folder, programs, model)
        self._port = free_port()
        account = {"provider": "custom", "base_url": model.url, "api_key": "sk-nobody"}
        config = {
            "model": {"default": "gpt-4o-mini", "context_length": 128_000, **account},
            "gateway": {"api_server": {"max_concurrent_runs": 0}},
        }
        (folder / "config.yaml").write_text(json.dumps(config))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[PeerProcesses]:
        """Run the gateway with its API server."""
        server = {"API_SERVER_ENABLED": "true", "API_SERVER_PORT": str(self._port), "API_SERVER_KEY": KEY}
        command, url = (self.program("hermes"), "gateway", "run"), f"http://127.0.0.1:{self._port}"
        async with self.process(*command, HERMES_HOME=str(self.folder), **server) as process, open_client(url) as http:

            async def answers() -> bool:
                return (await http.get("/health")).is_success

            async def open_conversation(name: str) -> PeerConversation:
                conversation = HermesConversation(name, url, Authorization=f"Bearer {KEY}")
                await conversation.open()
                return conversation

            await self.wait_until_ready(process, answers)
            yield PeerProcesses((process.pid,), open_conversation)
