"""A client of the web connector that survives a restart of Maestro: no message or answer is lost or duplicated."""

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

RECONNECT_SECONDS = 0.5
"""Seconds until the next attempt while Maestro is unreachable or accepts no messages."""
OPEN_SECONDS = 10.0
CLOSE_SECONDS = 1.0
TOO_LARGE = 1009
TEMPORARY = frozenset({"Backlogged", "InternalError", "ShuttingDown", "StoreBusy"})
"""Errors of the server after which the same message may be sent again."""
LOST = (OSError, ConnectionClosed, InvalidHandshake, TimeoutError, EOFError)


class ConnectorUnreachable(MaestroError):
    """No web connector answers at the address; the error message says how to start one."""

    public = "The web connector does not answer."


class ChatRefused(MaestroError):
    """The web connector refuses the login or the message; the error message says why."""

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

    ``visit`` is the state to resume from; ``remember`` is called whenever it changes. ``unacknowledged`` has the
    messages that Maestro has not acknowledged, by their ids.
    """

    def __init__(self, address: ConnectorAddress, visit: ChatVisit, remember: Callable[[ChatVisit], None]) -> None:
        self.visit = visit
        self.unacknowledged: dict[str, str] = {}
        self._address = address
        self._remember = remember
        self._socket: ClientConnection | None = None
        self._has_connected = False
        self._replaying_history = False

    async def say(self, client_id: str, content: str) -> None:
        """Send a message under an id of its own, now or with the next connection."""
        self.unacknowledged[client_id] = content
        if self._socket is not None:
            # A message cut off by a closed connection is sent again on the next connection.
            with contextlib.suppress(ConnectionClosed):
                await self._send_message(self._socket, client_id)

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """Yield the server's frames without end, each message once, and ``{"type": "away"}`` after a disconnection.

        Raises ``ConnectorUnreachable`` when the first connection fails, ``ForeignChannel`` and ``ChatRefused``.
        """
        while True:
            try:
                async with self._connect() as socket, contextlib.aclosing(self._receive_frames(socket)) as received:
                    async for frame in received:
                        yield frame
            except LOST as error:
                self._check_retryable(error)
            finally:
                lost, self._socket = self._socket, None
            if lost is not None:
                yield {"type": "away"}
            await asyncio.sleep(RECONNECT_SECONDS)

    def _connect(self) -> connect:
        return connect(
            self._address.url,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            compression=None,
            max_size=None,
            max_queue=None,  # with a limit, a full queue of unread frames would hide the close of the connection
            proxy=None if is_loopback(urlsplit(self._address.url).hostname or "") else True,
        )

    def _check_retryable(self, error: Exception) -> None:
        """Raise ``ConnectorUnreachable`` or ``ChatRefused`` if a new connection cannot succeed."""
        if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code == TOO_LARGE:
            raise ChatRefused("the message is larger than the web connector takes (web.maxFrameBytes)") from error
        if self._has_connected:
            return
        if isinstance(error, InvalidStatus):
            raise ChatRefused(
                f"{self._address.url} answers with HTTP {error.response.status_code}: it is no web connector, or its "
                "webui.allowedHosts does not name this host"
            ) from error
        raise ConnectorUnreachable(
            f"the web connector does not answer at {self._address.url}; start Maestro with `maestro up`, or name "
            "another address with --url"
        ) from error

    async def _receive_frames(self, socket: ClientConnection) -> AsyncGenerator[Frame, None]:
        """Log in, and yield the frames until the connection ends."""
        credentials = {
            "apiKey": self._address.api_key,
            "resumeToken": self.visit.resume_token,
            "userName": self._address.user_name,
            "channelId": self.visit.channel,
        }
        known = {key: text for key, text in credentials.items() if text}
        await socket.send(json.dumps({"type": "auth", "lastId": self.visit.last_id or 0, **known}))
        if not self._accept_login(json.loads(await socket.recv())):
            return
        self._has_connected = True
        self._replaying_history = self.visit.last_id is None
        async for text in socket:
            frame: Frame = json.loads(text)
            if await self._handle_frame(socket, frame):
                yield frame

    def _accept_login(self, frame: Frame) -> bool:
        """Return whether the login succeeded; False when the client has to connect again.

        Raises ``ForeignChannel`` and ``ChatRefused``.
        """
        if frame["type"] == "auth_ok":
            another = self.visit.instance not in ("", frame["instance"])
            # The stored id is dropped if it belongs to another installation.
            last_id = None if another else self.visit.last_id
            self._update_visit(resume_token=frame["resumeToken"], instance=frame["instance"], last_id=last_id)
            return not another
        error, reason = frame.get("error"), str(frame.get("message", ""))
        if error in TEMPORARY:
            return False
        if error == "Unauthorized" and self.visit.resume_token:
            self._update_visit(resume_token="")
            return False
        if error == "ChannelTaken":
            raise ForeignChannel(f"the web connector refused: {reason} Choose another with --channel.")
        fix = " The key is web.apiKey (MAESTRO_WEB_API_KEY)." if error == "Unauthorized" else ""
        raise ChatRefused(f"the web connector refused: {reason}{fix}")

    async def _handle_frame(self, socket: ClientConnection, frame: Frame) -> bool:
        """Handle a frame of the server; return whether the user should see the frame."""
        client_id = frame.get("clientId", "")
        match frame["type"]:
            case "message":
                if self.visit.last_id is not None and frame["id"] <= self.visit.last_id:
                    return False
                self._update_visit(last_id=frame["id"])
                return not self._replaying_history
            case "resumed":
                # After an older store was restored, the id is lower than the stored id; later messages are new.
                self._update_visit(last_id=frame["lastId"])
                self._replaying_history = False
                self._socket = socket
                for unacknowledged_id in tuple(self.unacknowledged):  # the server drops repeats of a clientId
                    await self._send_message(socket, unacknowledged_id)
            case "error" if client_id in self.unacknowledged and frame.get("error") in TEMPORARY:
                await asyncio.sleep(RECONNECT_SECONDS)
                await self._send_message(socket, client_id)
                return False
            case "ack" | "error":
                self.unacknowledged.pop(client_id, None)
        return True

    def _update_visit(self, **changes: object) -> None:
        self.visit = self.visit.model_copy(update=changes)
        self._remember(self.visit)

    async def _send_message(self, socket: ClientConnection, client_id: str) -> None:
        message = {"type": "message", "clientId": client_id, "content": self.unacknowledged[client_id]}
        await socket.send(json.dumps(message))
