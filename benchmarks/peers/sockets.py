"""Peers that users reach over a WebSocket: Maestro and nanobot."""

import asyncio
import contextlib
import json
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.model import Model
from benchmarks.peers.peer import Peer, Running, Talk, question
from benchmarks.product import settle, up
from tests.support.instance import free_port


class SocketTalk(Talk):
    """A conversation over a WebSocket of its own."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name)
        self._url = url
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None

    @abstractmethod
    async def greet(self, socket: ClientConnection) -> None:
        """Say which conversation this is."""

    @abstractmethod
    def frame(self, key: str) -> dict[str, Any]:
        """Return the frame of a question."""

    @abstractmethod
    def read(self, frame: dict[str, Any]) -> None:
        """Note what a frame says."""

    async def send(self, key: str) -> None:
        """Send the frame."""
        assert self._socket is not None
        await self._socket.send(json.dumps(self.frame(key)))

    async def reconnect(self) -> None:
        """Open a socket, and read from it in the background."""
        await self.close()
        self._socket = await connect(self._url, compression=None, max_size=None, max_queue=None, proxy=None)
        await self.greet(self._socket)
        self._reading = asyncio.create_task(self._read_frames(self._socket))

    async def close(self) -> None:
        """Close the socket."""
        if self._reading is not None and self._socket is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            await self._socket.close()

    async def _read_frames(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.read(json.loads(await socket.recv()))


class MaestroTalk(SocketTalk):
    """A conversation with the web connector, whose client says which message it has seen last."""

    last_id = 0

    async def greet(self, socket: ClientConnection) -> None:
        """Authenticate, and ask for what was missed."""
        await socket.send(json.dumps({"type": "auth", "channelId": self.name, "lastId": self.last_id}))
        welcome = json.loads(await socket.recv())
        if welcome["type"] != "auth_ok":
            raise RuntimeError(f"not let in: {welcome}")

    def frame(self, key: str) -> dict[str, Any]:
        """Return a message whose id makes a second one a duplicate."""
        return {"type": "message", "clientId": key, "content": question(key)}

    def read(self, frame: dict[str, Any]) -> None:
        """Note messages."""
        if frame["type"] == "message":
            self.last_id = max(self.last_id, frame["id"])
            self.note_answer(frame["content"])


class Maestro(Peer):
    """This project, as its benchmarks run it."""

    name = "Maestro"
    command = "maestro up"
    door = "WebSocket of the web connector; a message has an id of its client"

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        super().__init__(folder, programs, model)
        self._setting = settle(folder / "maestro", model)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        """Run ``maestro up``, which has a Temporal server of its own."""
        async with up(self._setting) as product:

            async def open_talk(name: str) -> Talk:
                talk = MaestroTalk(name, f"ws://127.0.0.1:{product.web_port}/")
                await talk.reconnect()
                return talk

            yield Running((product.pid, product.server_pid), open_talk)


class NanobotTalk(SocketTalk):
    """A chat of nanobot's own web interface, which streams; a segment of a stream that ends is an answer."""

    segment = ""

    async def greet(self, socket: ClientConnection) -> None:
        """Attach to the chat."""
        await socket.send(json.dumps({"type": "attach", "chat_id": self.name}))

    def frame(self, key: str) -> dict[str, Any]:
        """Return a message as the web interface sends it."""
        turn = {"webui": True, "turn_id": key}
        return {"type": "message", "chat_id": self.name, "content": question(key), **turn}

    def read(self, frame: dict[str, Any]) -> None:
        """Note answers, and offers to continue what a restart interrupted."""
        event, text = frame["event"], str(frame.get("text", ""))
        if event == "delta":
            self.segment += text
        elif event == "stream_end" and self.segment:
            self.note_answer(self.segment)
            self.segment = ""
        elif event == "attached" and frame.get("recovery_state", {}).get("status") == "awaiting_user":
            self.offers += 1


class Nanobot(Peer):
    """A personal agent in one process, with sessions in files."""

    name = "nanobot"
    requirements = ("nanobot-ai==0.3.5",)
    command = "nanobot gateway --foreground"
    door = "WebSocket of its web interface, which streams"

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        super().__init__(folder, programs, model)
        self._port, gateway = free_port(), free_port()
        channel = {"enabled": True, "port": self._port, "websocketRequiresToken": False}
        defaults = {"workspace": str(folder / "workspace"), "provider": "custom", "model": "gpt-4o-mini"}
        config = {
            "agents": {"defaults": defaults},
            "providers": {"custom": {"apiKey": "sk-nobody", "apiBase": model.url}},
            "channels": {"websocket": channel},
            "gateway": {"port": gateway},
        }
        (folder / "config.json").write_text(json.dumps(config))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        """Run the gateway."""
        command = (self.program("nanobot"), "gateway", "--foreground", "--config", str(self.folder / "config.json"))
        url = f"ws://127.0.0.1:{self._port}/"

        async def answers() -> bool:
            async with connect(url, proxy=None) as socket:
                return "ready" in str(await socket.recv())

        async def open_talk(name: str) -> Talk:
            talk = NanobotTalk(name, url)
            await talk.reconnect()
            return talk

        async with self.process(*command) as process:
            await self.until_ready(process, answers)
            yield Running((process.pid,), open_talk)
