"""A person with a good client: it reconnects with ``lastId``, and sends again what was not acknowledged."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from connectors.web_client import TEMPORARY

Frame = dict[str, Any]

PATIENCE = 60.0
COME_BACK = 0.05
"""Seconds until the client tries again after the server was gone, or refused a message for the moment."""


class Person:
    """Somebody in one channel; ``frames`` is everything the server ever said, over all connections."""

    def __init__(self, port: int, channel: str) -> None:
        self.channel = channel
        self.frames: list[Frame] = []
        self.connections = 0
        self._url = f"ws://127.0.0.1:{port}/"
        self._unacked: dict[str, str] = {}
        self._socket: ClientConnection | None = None
        self._token = ""
        self._news = asyncio.Condition()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            with contextlib.suppress(OSError, ConnectionClosed, InvalidHandshake, TimeoutError, EOFError):
                async with connect(self._url, compression=None, max_queue=None, open_timeout=5) as socket:
                    await self._converse(socket)
            self._socket = None
            await asyncio.sleep(COME_BACK)

    async def say(self, content: str, client_id: str = "") -> str:
        """Say something, now or as soon as there is a connection; its ``clientId`` is its first word if not given."""
        client_id = client_id or content.split()[0]
        self._unacked[client_id] = content
        if self._socket is not None:
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send(_message(client_id, content))
        return client_id

    @property
    def replies(self) -> list[Frame]:
        """The chunks that arrived, in order."""
        return [frame for frame in self.frames if frame["type"] == "message"]

    def replies_to(self, client_id: str) -> list[Frame]:
        """The first chunks of the replies to a message."""
        return [frame for frame in self.replies if str(frame.get("replyTo", "")).endswith(f":{client_id}")]

    async def until(self, true: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Return when a condition on what arrived is true; raises ``TimeoutError``."""
        async with asyncio.timeout(patience), self._news:
            await self._news.wait_for(true)

    async def answered(self, *client_ids: str) -> None:
        """Return when each of these messages has a reply."""
        await self.until(lambda: all(self.replies_to(client_id) for client_id in client_ids))

    async def has(self, *ids: int) -> None:
        """Return when each of these chunks has arrived."""
        await self.until(lambda: set(ids) <= {frame["id"] for frame in self.replies})

    async def acknowledged(self, *client_ids: str) -> None:
        """Return when the server has each of these messages."""
        await self.until(lambda: not self._unacked.keys() & set(client_ids))

    async def connected(self) -> None:
        """Return when the server has let us in."""
        await self.until(lambda: self._socket is not None)

    def hang_up(self) -> None:
        """Lose the connection without a word; the next one is made as usual."""
        if self._socket is not None:
            self._socket.transport.abort()

    async def _converse(self, socket: ClientConnection) -> None:
        last_id = max((frame["id"] for frame in self.replies), default=0)
        token = {"resumeToken": self._token} if self._token else {}
        await socket.send(json.dumps({"type": "auth", "channelId": self.channel, "lastId": last_id, **token}))
        async for text in socket:
            frame = json.loads(text)
            await self._take(socket, frame)

    async def _take(self, socket: ClientConnection, frame: Frame) -> None:
        self.frames.append(frame)
        if frame["type"] == "auth_ok":
            self._token = frame["resumeToken"]
            self._socket = socket
            self.connections += 1
            for client_id, content in self._unacked.copy().items():
                await socket.send(_message(client_id, content))
        elif frame["type"] == "ack":
            self._unacked.pop(frame.get("clientId", ""), None)
        elif frame["type"] == "error" and frame["error"] in TEMPORARY and frame.get("clientId") in self._unacked:
            await asyncio.sleep(COME_BACK)
            await socket.send(_message(frame["clientId"], self._unacked[frame["clientId"]]))
        async with self._news:
            self._news.notify_all()


@asynccontextmanager
async def person(port: int, channel: str) -> AsyncIterator[Person]:
    """Let somebody talk in a channel."""
    somebody = Person(port, channel)
    talking = asyncio.create_task(somebody.run())
    try:
        await somebody.connected()
        yield somebody
    finally:
        talking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await talking


def _message(client_id: str, content: str) -> str:
    return json.dumps({"type": "message", "clientId": client_id, "content": content})
