"""A client of the web connector that survives a restart of Maestro: no message or answer is lost or doubled."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from maestro.cli.chat.visits import ChatVisit
from maestro.domain.errors import MaestroError
from maestro.settings import is_loopback

Frame = Mapping[str, Any]

COME_BACK_SECONDS = 0.5
"""Seconds until the next attempt while Maestro is unreachable or accepts no messages."""
OPEN_SECONDS = 10.0
CLOSE_SECONDS = 1.0
TOO_LARGE = 1009
PASSING = frozenset({"Backlogged", "InternalError", "ShuttingDown", "StoreBusy"})
"""Errors of the server after which the same message may be sent again."""
LOST = (OSError, ConnectionClosed, InvalidHandshake, TimeoutError, EOFError)


class ConnectorUnreachable(MaestroError):
    """No web connector answers at the address; the message explains how to start one."""

    public = "The web connector does not answer."


class ChatRefused(MaestroError):
    """The web connector refuses the login or the message; the text says why."""

    public = "The web connector refused."


class ForeignChannel(ChatRefused):
    """The channel belongs to another user."""


@dataclass(frozen=True)
class ConnectorAddress:
    """The address of a web connector, its key, and the name of the user."""

    url: str
    api_key: str = field(default="", repr=False)
    user_name: str = ""


class ChatClient:
    """A chat of one user in one channel, over any number of connections.

    ``visit`` is the state to resume from; ``remember`` is called whenever it changes.
    """

    def __init__(self, place: ConnectorAddress, visit: ChatVisit, remember: Callable[[ChatVisit], None]) -> None:
        self.visit = visit
        self._place = place
        self._remember = remember
        self._unacknowledged: dict[str, str] = {}
        self._socket: ClientConnection | None = None
        self._been_there = False
        self._history = False

    @property
    def unacknowledged(self) -> int:
        """The number of messages that Maestro has not acknowledged."""
        return len(self._unacknowledged)

    async def say(self, client_id: str, content: str) -> None:
        """Send a message under an id of its own, now or with the next connection."""
        self._unacknowledged[client_id] = content
        if self._socket is not None:
            # A message cut off by a closed connection is sent again on the next one.
            with contextlib.suppress(ConnectionClosed):
                await self._send(self._socket, client_id)

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """Yield the server's frames, each message once, and ``{"type": "away"}`` after a disconnection; endless.

        Raises ``ConnectorUnreachable`` when the first connection fails, ``ForeignChannel`` and ``ChatRefused``.
        """
        while True:
            try:
                async with self._connection() as socket, contextlib.aclosing(self._conversation(socket)) as said:
                    async for frame in said:
                        yield frame
            except LOST as error:
                self._judge(error)
            finally:
                lost, self._socket = self._socket, None
            if lost is not None:
                yield {"type": "away"}
            await asyncio.sleep(COME_BACK_SECONDS)

    def _connection(self) -> connect:
        here = is_loopback(urlsplit(self._place.url).hostname or "")
        return connect(
            self._place.url,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            compression=None,
            max_size=None,
            max_queue=None,  # with a limit, a full queue of unread frames would hide the close of the connection
            proxy=None if here else True,
        )

    def _judge(self, error: Exception) -> None:
        """Return if a new connection may succeed; raises ``ConnectorUnreachable`` and ``ChatRefused``."""
        if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code == TOO_LARGE:
            raise ChatRefused("the message is larger than the web connector takes (web.maxFrameBytes)") from error
        if self._been_there:
            return
        if isinstance(error, InvalidStatus):
            raise ChatRefused(
                f"{self._place.url} answers with HTTP {error.response.status_code}: it is no web connector, or its "
                "webui.allowedHosts does not name this host"
            ) from error
        raise ConnectorUnreachable(
            f"the web connector does not answer at {self._place.url}; start Maestro with `maestro up`, or name another "
            "address with --url"
        ) from error

    async def _conversation(self, socket: ClientConnection) -> AsyncGenerator[Frame, None]:
        """Log in, and yield the frames until the connection ends."""
        await socket.send(json.dumps(self._auth()))
        if not self._log_in(json.loads(await socket.recv())):
            return
        self._been_there = True
        self._history = self.visit.last_id is None
        async for text in socket:
            frame: Frame = json.loads(text)
            if await self._take(socket, frame):
                yield frame

    def _auth(self) -> Frame:
        given = {
            "apiKey": self._place.api_key,
            "resumeToken": self.visit.resume_token,
            "userName": self._place.user_name,
            "channelId": self.visit.channel,
        }
        return {"type": "auth", "lastId": self.visit.last_id or 0} | {key: text for key, text in given.items() if text}

    def _log_in(self, frame: Frame) -> bool:
        """Return whether the login succeeded; false when the client has to connect once more.

        Raises ``ForeignChannel`` and ``ChatRefused``.
        """
        if frame["type"] == "auth_ok":
            another = self.visit.instance not in ("", frame["instance"])
            # The stored id is dropped if it belongs to another installation.
            last_id = None if another else self.visit.last_id
            self._update(resume_token=frame["resumeToken"], instance=frame["instance"], last_id=last_id)
            return not another
        kind, why = frame.get("error"), str(frame.get("message", ""))
        if kind in PASSING:
            return False
        if kind == "Unauthorized" and self.visit.resume_token:
            self._update(resume_token="")
            return False
        if kind == "ChannelTaken":
            raise ForeignChannel(f"the web connector refused: {why} Choose another with --channel.")
        fix = " The key is web.apiKey (MAESTRO_WEB_API_KEY)." if kind == "Unauthorized" else ""
        raise ChatRefused(f"the web connector refused: {why}{fix}")

    async def _take(self, socket: ClientConnection, frame: Frame) -> bool:
        """Handle a frame of the server; true if the user should see it."""
        match frame["type"]:
            case "message":
                return self._see(frame["id"]) and not self._history
            case "resumed":
                # After an older store was restored, the id is lower than the stored one; later messages are still new.
                self._update(last_id=frame["lastId"])
                self._history = False
                await self._say_again(socket)
            case "ack":
                self._unacknowledged.pop(frame.get("clientId", ""), None)
            case "error":
                return await self._is_final(socket, frame)
        return True

    def _see(self, delivery_id: int) -> bool:
        """Record the newest id received; false if it was received before."""
        if self.visit.last_id is not None and delivery_id <= self.visit.last_id:
            return False
        self._update(last_id=delivery_id)
        return True

    def _update(self, **changes: object) -> None:
        self.visit = self.visit.model_copy(update=changes)
        self._remember(self.visit)

    async def _say_again(self, socket: ClientConnection) -> None:
        """Send the unacknowledged messages again; the server recognizes a repeated ``clientId``."""
        self._socket = socket
        for client_id in tuple(self._unacknowledged):
            await self._send(socket, client_id)

    async def _is_final(self, socket: ClientConnection, error: Frame) -> bool:
        """Send a message again after a temporary error; true if the error is final."""
        client_id = error.get("clientId", "")
        if client_id in self._unacknowledged and error.get("error") in PASSING:
            await asyncio.sleep(COME_BACK_SECONDS)
            await self._send(socket, client_id)
            return False
        self._unacknowledged.pop(client_id, None)
        return True

    async def _send(self, socket: ClientConnection, client_id: str) -> None:
        content = self._unacknowledged[client_id]
        await socket.send(json.dumps({"type": "message", "clientId": client_id, "content": content}))
