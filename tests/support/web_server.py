"""A web connector on a free port, with everything it keeps in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from connectors.web import WebConfig, WebConnector
from maestro.domain.messages import Address, OutgoingMessage
from tests.support.memory_context import MemoryContext

KEY = "a-key-that-only-programs-know"
SIGNING_KEY = b"signing key of the tests"


@dataclass
class WebServer:
    """A running connector and what it was given; ``task`` is its ``run``."""

    connector: WebConnector
    context: MemoryContext
    task: "asyncio.Task[None]"
    _ids: list[int] = field(default_factory=lambda: [0])

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.connector.port

    @property
    def url(self) -> str:
        """The root of its HTTP side."""
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, channel: str, content: str, reply_to: str = "", **marks: Any) -> OutgoingMessage:
        """Deliver an answer the way the delivery step does: sent first, then on record; ``marks`` are its fields."""
        self._ids[0] += 1
        message = OutgoingMessage(
            id=self._ids[0],
            address=Address(platform="web", channel=channel),
            content=content,
            reply_to=reply_to,
            **marks,
        )
        receipt = await self.connector.send(message)
        assert receipt.platform_message_id == str(message.id)
        self.context.sent.append(message)
        return message

    async def clients(self) -> int:
        """Ask how many sockets are authenticated."""
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{self.url}/health")
        assert answer.json()["status"] == "ok"
        return int(answer.json()["clients"])


@asynccontextmanager
async def web_server(context: MemoryContext | None = None, **settings: Any) -> AsyncIterator[WebServer]:
    """Run a connector for the length of a block; without settings the local person is the owner."""
    settings.setdefault("local_owner", not settings.get("api_key"))
    config = WebConfig(**{"signing_key": SIGNING_KEY, "port": 0, **settings})
    context = context or MemoryContext()
    connector = WebConnector(config, context)
    task = asyncio.create_task(connector.run())
    try:
        await connector.wait_until_started()
        yield WebServer(connector, context, task)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
