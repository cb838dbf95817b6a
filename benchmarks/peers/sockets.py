"""Peers with a WebSocket: Maestro and nanobot."""

import asyncio
import contextlib
import json
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from benchmarks.machine import describe_release
from benchmarks.model import Model
from benchmarks.peers.peer import Peer, PeerConversation, PeerFailure, PeerProcesses, peer_failure_from, question_text
from benchmarks.product import create_setting, up
from tests.support.ports import free_port


class SocketConversation(PeerConversation):
    """A conversation over a WebSocket of its own."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name)
        self._url = url
        self._socket: ClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None

    @abstractmethod
    async def join(self, socket: ClientConnection) -> None:
        """Authenticate, or name the conversation."""

    @abstractmethod
    def frame(self, key: str) -> dict[str, Any]:
        """Return the frame of a question."""

    @abstractmethod
    def read(self, frame: dict[str, Any]) -> None:
        """Record the answer, or the offer to continue, that a frame has."""

    async def send(self, key: str) -> None:
        """Send the frame."""
        assert self._socket is not None
        with peer_failure_from("send a question", WebSocketException):
            await self._socket.send(json.dumps(self.frame(key)))

    async def reconnect(self) -> None:
        """Open a socket, and read from it in the background."""
        await self.close()
        with peer_failure_from("connect", WebSocketException):
            self._socket = await connect(self._url, compression=None, max_size=None, max_queue=None, proxy=None)
            await self.join(self._socket)
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


class MaestroConversation(SocketConversation):
    """A conversation with the web connector, whose client names the last message that it has."""

    last_id = 0

    async def join(self, socket: ClientConnection) -> None:
        """Authenticate, and request the messages after the last one."""
        await socket.send(json.dumps({"type": "auth", "channelId": self.name, "lastId": self.last_id}))
        welcome = json.loads(await socket.recv())
        if welcome["type"] != "auth_ok":
            raise PeerFailure(f"the web connector refused the client: {welcome}")

    def frame(self, key: str) -> dict[str, Any]:
        """Return a message with the id of its question, by which a second one is a duplicate."""
        return {"type": "message", "clientId": key, "content": question_text(key)}

    def read(self, frame: dict[str, Any]) -> None:
        """Record messages."""
        if frame["type"] == "message":
            self.last_id = max(self.last_id, frame["id"])
            self.record_answer(frame["content"])


class Maestro(Peer):
    """This project, as its benchmarks run it."""

    name = "Maestro"
    command = "maestro up"
    access = "WebSocket of the web connector; the client gives each message an id"

    @classmethod
    def describe_version(cls) -> str:
        """Return the release and the commit of these sources."""
        return describe_release()

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        super().__init__(folder, programs, model)
        self._setting = create_setting(folder / "maestro", model)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[PeerProcesses]:
        """Run ``maestro up`` with its embedded Temporal server."""
        async with AsyncExitStack() as stack:
            with peer_failure_from("start", RuntimeError):
                product = await stack.enter_async_context(up(self._setting))

            async def open_conversation(name: str) -> PeerConversation:
                conversation = MaestroConversation(name, f"ws://127.0.0.1:{product.web_port}/")
                await conversation.reconnect()
                return conversation

            yield PeerProcesses((product.pid, product.server_pid), open_conversation)


class NanobotConversation(SocketConversation):
    """A chat of nanobot's web interface, which streams; each segment of a stream is an answer."""

    segment = ""

    async def join(self, socket: ClientConnection) -> None:
        """Attach to the chat."""
        await socket.send(json.dumps({"type": "attach", "chat_id": self.name}))

    def frame(self, key: str) -> dict[str, Any]:
        """Return a message as the web interface sends it."""
        turn = {"webui": True, "turn_id": key}
        return {"type": "message", "chat_id": self.name, "content": question_text(key), **turn}

    def read(self, frame: dict[str, Any]) -> None:
        """Record answers, and offers to continue an interrupted task."""
        event, text = frame["event"], str(frame.get("text", ""))
        if event == "delta":
            self.segment += text
        elif event == "stream_end" and self.segment:
            self.record_answer(self.segment)
            self.segment = ""
        elif event == "attached" and frame.get("recovery_state", {}).get("status") == "awaiting_user":
            self.offers += 1


class Nanobot(Peer):
    """A personal agent in one process, with sessions in files."""

    name = "nanobot"
    requirements = ("nanobot-ai==0.3.5",)
    command = "nanobot gateway --foreground"
    access = "WebSocket of its web interface, which streams"

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
    async def run(self) -> AsyncIterator[PeerProcesses]:
        """Run the gateway."""
        command = (self.program("nanobot"), "gateway", "--foreground", "--config", str(self.folder / "config.json"))
        url = f"ws://127.0.0.1:{self._port}/"

        async def answers() -> bool:
            with contextlib.suppress(WebSocketException):
                async with connect(url, proxy=None) as socket:
                    return "ready" in str(await socket.recv())
            return False

        async def open_conversation(name: str) -> PeerConversation:
            conversation = NanobotConversation(name, url)
            await conversation.reconnect()
            return conversation

        async with self.process(*command) as process:
            await self.wait_until_ready(process, answers)
            yield PeerProcesses((process.pid,), open_conversation)
