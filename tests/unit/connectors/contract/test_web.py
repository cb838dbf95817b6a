"""The web connector keeps the contract of connectors."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
from websockets.exceptions import ConnectionClosed

from connectors.contract import Bench, ConnectorContract, Fault
from connectors.web import WebConfig, WebConnector
from maestro.domain.messages import Address
from tests.support.memory_context import MemoryContext
from tests.support.web_client import WebClient, web_client
from tests.support.web_server import SIGNING_KEY

PLACE = Address(platform="web", channel="general")


class WebBench:
    """A web connector and a client that sends again what was not acknowledged."""

    faults: frozenset[Fault] = frozenset()
    place = PLACE
    token = ""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self.context = MemoryContext()
        self._stack = stack
        self._said: list[str] = []
        self._unheard: list[int] = []
        self._shown: dict[int, str] = {}

    async def connect(self) -> None:
        """Run a connector, and a client of it."""
        config = WebConfig(signing_key=SIGNING_KEY, port=0, local_owner=True)
        self.connector = WebConnector(config, self.context)
        self._running = asyncio.create_task(self.connector.run())
        self._stack.push_async_callback(self._stop)
        await self.connector.wait_until_started()
        last_id = max(self._shown, default=0)
        self._client: WebClient = await self._stack.enter_async_context(
            web_client(self.connector.port, channelId=PLACE.channel, lastId=last_id)
        )

    async def say(self, text: str) -> str:
        """Send a message under an id of the client's own."""
        self._said.append(text)
        number = len(self._said) - 1
        self._unheard.append(number)
        await self._send(number)
        return f"{number:032x}" if not self.context.inbox else self.context.inbox[-1].id

    async def repeat(self, message_id: str) -> None:
        """Send the first message again: the tests repeat no other."""
        await self._send(0)

    async def come_back(self) -> None:
        """Connect anew, and send what was not acknowledged."""
        await self._stop()
        await self.connect()
        for number in list(self._unheard):
            await self._send(number)

    def arm(self, fault: Fault) -> None:
        """Nothing goes wrong on a socket of ours that a resume does not mend."""
        raise NotImplementedError

    async def posts(self) -> Sequence[str]:
        """Return what the client was shown, each delivery once."""
        await self._client.send({"type": "ping"})
        await self._client.wait_for("pong")
        self._shown |= {frame["id"]: frame["content"] for frame in self._client.frames if frame["type"] == "message"}
        return [text for _, text in sorted(self._shown.items())]

    async def _send(self, number: int) -> None:
        with contextlib.suppress(ConnectionClosed):
            answer = await self._client.say(self._said[number], f"{number:032x}")
            if answer["type"] == "ack" and number in self._unheard:
                self._unheard.remove(number)

    async def _stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Connect one."""
    async with contextlib.AsyncExitStack() as stack:
        made = WebBench(stack)
        await made.connect()
        yield made


class TestWeb(ConnectorContract):
    """The promises, kept by the web connector."""
