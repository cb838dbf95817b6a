"""A real client of the web connector, over a real socket; also for tests that start Maestro as a process."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

Frame = dict[str, Any]
PATIENCE = 60.0


@dataclass
class WebClient:
    """One connection; ``frames`` is everything the server said, in order, and ``last_id`` what a resume needs."""

    socket: ClientConnection
    frames: list[Frame] = field(default_factory=list)
    auth: Frame = field(default_factory=dict)
    last_id: int = 0
    _unread: list[Frame] = field(default_factory=list)

    @property
    def channel(self) -> str:
        """The channel this connection talks in."""
        return str(self.auth["channelId"])

    @property
    def user(self) -> str:
        """The user id the server gave us."""
        return str(self.auth["userId"])

    @property
    def resume_token(self) -> str:
        """What makes the next connection the same user."""
        return str(self.auth["resumeToken"])

    async def send(self, frame: Mapping[str, object] | str | bytes) -> None:
        """Send a frame as it is."""
        await self.socket.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    async def authenticate(self, **fields: object) -> Frame:
        """Send auth with these fields and return the first answer, ``auth_ok`` or ``error``."""
        await self.send({"type": "auth", **fields})
        answer = await self.next()
        if answer["type"] == "auth_ok":
            self.auth = answer
        return answer

    async def say(self, content: str, client_id: str = "", attachments: Sequence[str] = ()) -> Frame:
        """Send a message and return the ``ack`` or ``error`` that answers it; other frames stay readable."""
        frame: Frame = {"type": "message", "content": content}
        if client_id:
            frame["clientId"] = client_id
        if attachments:
            frame["attachments"] = list(attachments)
        await self.send(frame)
        return await self.wait_for("ack", "error")

    async def ask(self, content: str, client_id: str = "", patience: float = PATIENCE) -> str:
        """Send a message and return the text of the next answer; raises ``AssertionError`` when it is refused."""
        ack = await self.say(content, client_id)
        assert ack["type"] == "ack", ack
        answer = await self.wait_for("message", patience=patience)
        return str(answer["content"])

    async def wait_for(self, *kinds: str, patience: float = PATIENCE) -> Frame:
        """Return the next frame of one of these kinds, keeping the others for later; raises ``TimeoutError``."""
        for at, frame in enumerate(self._unread):
            if frame["type"] in kinds:
                return self._unread.pop(at)
        async with asyncio.timeout(patience):
            while True:
                frame = await self._receive()
                if frame["type"] in kinds:
                    return frame
                self._unread.append(frame)

    async def next(self, patience: float = PATIENCE) -> Frame:
        """Return the next frame, whatever it is; raises ``TimeoutError`` or websockets' ``ConnectionClosed``."""
        if self._unread:
            return self._unread.pop(0)
        async with asyncio.timeout(patience):
            return await self._receive()

    async def silent(self, seconds: float = 0.2) -> bool:
        """Tell whether nothing arrives for this long."""
        try:
            self._unread.append(await self.next(seconds))
        except TimeoutError:
            return True
        return False

    async def closed(self, patience: float = PATIENCE) -> int:
        """Read until the server closes, and return the close code."""
        async with asyncio.timeout(patience):
            while True:
                try:
                    self._unread.append(await self._receive())
                except ConnectionClosed as end:
                    return end.rcvd.code if end.rcvd else 1006

    async def _receive(self) -> Frame:
        frame: Frame = json.loads(await self.socket.recv())
        self.frames.append(frame)
        if frame["type"] == "message":
            self.last_id = max(self.last_id, frame["id"])
        return frame


@asynccontextmanager
async def web_client(
    port: int, *, host: str = "127.0.0.1", headers: Mapping[str, str] | None = None, **auth: object
) -> AsyncIterator[WebClient]:
    """Connect and, unless the only field is ``auth=False``, authenticate with the given fields of the auth frame.

    Raises websockets' ``InvalidStatus`` when the upgrade is refused and ``AssertionError`` when the auth is.
    """
    wants_auth = auth.pop("auth", True)
    async with connect(
        f"ws://{host}:{port}/",
        additional_headers=dict(headers or {}),
        compression=None,
        max_size=None,
        max_queue=None,  # with a bound, unread frames keep the library from seeing the close for 10 s
    ) as socket:
        client = WebClient(socket)
        if wants_auth:
            answer = await client.authenticate(**auth)
            assert answer["type"] == "auth_ok", answer
        yield client
