"""Peers that users reach over HTTP: LangGraph's local server and Hermes Agent."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from benchmarks.model import Model
from benchmarks.peers.peer import Peer, RequestTalk, Running, Talk, open_client, question
from tests.support.instance import free_port

GRAPH = Path(__file__).with_name("graph.py")
AT_ONCE = 50
"""How many runs LangGraph's server may work on; its default of 10 would make users wait for each other."""
KEY = "2f7a1c9e5b8d4063a1e7c2b9d4f60853"
"""The API key of Hermes, which refuses short ones."""


class GraphTalk(RequestTalk):
    """A thread of LangGraph's server; runs on one thread wait for each other."""

    @property
    def _thread(self) -> str:
        return f"/threads/{uuid5(NAMESPACE_URL, self.name)}"

    async def request_answer(self, key: str) -> str:
        """Run the graph on the thread, and wait for it."""
        body = {
            "assistant_id": "chat",
            "input": {"messages": [{"role": "user", "content": question(key)}]},
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
    """LangGraph's server for development: threads, runs and checkpoints in memory, written to files at times."""

    name = "LangGraph"
    requirements = (
        "langgraph-api==0.16.7",
        "langgraph-cli[inmem]==0.4.40",
        "langchain-openai==1.7.3",
        "langchain-core==1.7.2",  # the newest for which the packages of the others exist; pip searches long for it
    )
    command = f"langgraph dev --no-browser --no-reload --n-jobs-per-worker {AT_ONCE}"
    door = "HTTP: a run on a thread, `enqueue` for quick messages"

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        super().__init__(folder, programs, model)
        self._port = free_port()
        (folder / "graph.py").write_text(GRAPH.read_text())
        (folder / "langgraph.json").write_text(
            json.dumps({"dependencies": ["."], "graphs": {"chat": "./graph.py:graph"}})
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        """Run the server."""
        command = (self.program("langgraph"), *self.command.split()[1:], "--port", str(self._port))
        url = f"http://127.0.0.1:{self._port}"
        quiet = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"}
        async with self.process(*command, **quiet) as process, open_client(url) as http:

            async def answers() -> bool:
                return (await http.get("/ok")).is_success

            async def open_talk(name: str) -> Talk:
                return GraphTalk(name, url)

            await self.until_ready(process, answers)
            yield Running((process.pid,), open_talk)


class HermesTalk(RequestTalk):
    """A session of the API of Hermes."""

    async def open(self) -> None:
        """Create the session."""
        (await self.http.post("/api/sessions", json={"id": self.name})).raise_for_status()

    async def request_answer(self, key: str) -> str:
        """Chat with the session, and wait for the answer."""
        response = await self.http.post(f"/api/sessions/{self.name}/chat", json={"message": question(key)})
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
    door = "HTTP: a session of its API server, `max_concurrent_runs: 0` (no limit)"

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
    async def running(self) -> AsyncIterator[Running]:
        """Run the gateway with its API server."""
        server = {"API_SERVER_ENABLED": "true", "API_SERVER_PORT": str(self._port), "API_SERVER_KEY": KEY}
        command, url = (self.program("hermes"), "gateway", "run"), f"http://127.0.0.1:{self._port}"
        async with self.process(*command, HERMES_HOME=str(self.folder), **server) as process, open_client(url) as http:

            async def answers() -> bool:
                return (await http.get("/health")).is_success

            async def open_talk(name: str) -> Talk:
                talk = HermesTalk(name, url, Authorization=f"Bearer {KEY}")
                await talk.open()
                return talk

            await self.until_ready(process, answers)
            yield Running((process.pid,), open_talk)
