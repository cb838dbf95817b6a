"""A client of the web connector that survives a restart of Maestro: no message or answer is lost or duplicated."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import unicodedata
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from maestro.domain.errors import MaestroError
from maestro.domain.messages import control_word
from maestro.domain.settings.section import is_loopback
from maestro.domain.values import Value

Frame = Mapping[str, Any]

RECONNECT_SECONDS = 0.5
"""Seconds until the next attempt while Maestro is unreachable or accepts no messages."""
OPEN_SECONDS = 10.0
CLOSE_SECONDS = 1.0
TOO_LARGE = 1009
TEMPORARY = frozenset({"Backlogged", "InternalError", "ShuttingDown", "StoreBusy"})
"""Errors of the server after which the same message may be sent again."""
LOST = (OSError, ConnectionClosed, InvalidHandshake, TimeoutError, EOFError)
MEGABYTE = 1000**2


class ChatFailed(MaestroError):
    """A failed chat: the web connector is unreachable, refuses or does not answer in time, or no agent can answer."""

    public = "The message could not be answered."


class ForeignChannel(ChatFailed):
    """The channel belongs to another user."""


class ChatVisit(Value):
    """The stored state with which the next connection resumes as the same user in the same channel.

    ``last_id`` is the id of the newest received message, None before the first visit. ``instance`` is the id of the
    Maestro installation to which the other fields belong.
    """

    url: str
    channel: str
    resume_token: str = ""
    instance: str = ""
    last_id: int | None = None


@dataclass(frozen=True)
class VisitFiles:
    """The files with the visits of one user; only this user can read them, because a resume token works as a login."""

    folder: Path

    def find_visit(self, url: str, name: str) -> ChatVisit | None:
        """Return the visit stored under this name, with the newest token; an unreadable file counts as missing."""
        visit = _read_visit(self._visit_file(url, name))
        return visit.model_copy(update={"resume_token": self.find_token(url)}) if visit and visit.url == url else None

    def start_visit(self, url: str, name: str, user: str) -> ChatVisit:
        """Return a first visit: for a name ``#CHANNEL`` to that channel, for ``@AGENT`` to a new channel."""
        if name.startswith("#"):
            return ChatVisit(url=url, channel=name[1:], resume_token=self.find_token(url))
        visit = ChatVisit(url=url, channel=new_channel(user, name[1:]), resume_token=self.find_token(url), last_id=0)
        self.save_visit(name, visit)
        return visit

    def find_token(self, url: str) -> str:
        """Return the newest resume token for this address, or "", so that the user is the same in all channels."""
        dated = []
        for file in self.folder.glob("*.json"):
            with contextlib.suppress(OSError):  # Another process may delete the visit file at the same time.
                dated.append((file.stat().st_mtime_ns, file))
        visits = (_read_visit(file) for _, file in sorted(dated, reverse=True))
        return next((visit.resume_token for visit in visits if visit and visit.url == url and visit.resume_token), "")

    def save_visit(self, name: str, visit: ChatVisit) -> None:
        """Store the visit under this name; if writing fails, the next `maestro chat` starts a new channel."""
        file = self._visit_file(visit.url, name)
        fresh = file.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
                opened.write(visit.model_dump_json())
            fresh.replace(file)

    def _visit_file(self, url: str, name: str) -> Path:
        digest = hashlib.sha256(f"{url} {name}".encode()).hexdigest()
        return self.folder / f"{digest[:24]}.json"


def _read_visit(file: Path) -> ChatVisit | None:
    try:
        return ChatVisit.model_validate_json(file.read_text())
    except (OSError, ValidationError):
        return None


def new_channel(user: str, agent: str) -> str:
    """Return a unique channel id that names the user and the agent."""
    parts = ("terminal", re.sub(r"[^A-Za-z0-9._-]+", "-", user)[:40], agent, secrets.token_hex(4))
    return "-".join(filter(None, parts))


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder in which Maestro's commands store the state of this user."""
    return Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "maestro"


class ChatClient:
    """A chat of one user in one channel, which reconnects after each lost connection.

    ``user`` has the ``apiKey`` and the ``userName`` of the login. ``visit`` is the state to resume from; ``remember``
    is called with each change of the visit. ``unacknowledged`` has the messages that Maestro has not acknowledged, by
    client id.
    """

    def __init__(
        self, url: str, user: Mapping[str, str], visit: ChatVisit, remember: Callable[[ChatVisit], None]
    ) -> None:
        self.visit = visit
        self.unacknowledged: dict[str, str] = {}
        self._url = url
        self._user = user
        self._remember = remember
        self._socket: ClientConnection | None = None
        self._has_connected = False
        self._replaying_history = False

    async def send_message(self, client_id: str, content: str) -> None:
        """Send a message under ``client_id``, now or with the next connection."""
        self.unacknowledged[client_id] = content
        if self._socket is not None:
            # A message cut off by a closed connection is sent again on the next connection.
            with contextlib.suppress(ConnectionClosed):
                await self._send_message(self._socket, client_id)

    async def receive_frames(self) -> AsyncGenerator[Frame, None]:
        """Yield the server's frames without end, each message once, and ``{"type": "away"}`` after a disconnection.

        Raises ``ForeignChannel``, and ``ChatFailed`` when the first connection fails or the login is refused.
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
            self._url,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            compression=None,
            max_size=None,
            max_queue=None,  # A limited queue that is full would hide the close of the connection.
            proxy=None if is_loopback(urlsplit(self._url).hostname or "") else True,
        )

    def _check_retryable(self, error: Exception) -> None:
        """Raise ``ChatFailed`` if a new connection cannot succeed."""
        if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code == TOO_LARGE:
            raise ChatFailed("the message is larger than the web connector takes (web.maxFrameBytes)") from error
        if self._has_connected:
            return
        if isinstance(error, InvalidStatus):
            raise ChatFailed(
                f"{self._url} answers with HTTP {error.response.status_code}: it is no web connector, or its "
                "webui.allowedHosts does not name this host"
            ) from error
        raise ChatFailed(
            f"the web connector does not answer at {self._url}; start Maestro with `maestro up`, or name "
            "another address with --url"
        ) from error

    async def _receive_frames(self, socket: ClientConnection) -> AsyncGenerator[Frame, None]:
        """Log in, and yield the frames until the connection ends."""
        credentials = {**self._user, "resumeToken": self.visit.resume_token, "channelId": self.visit.channel}
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

        Raises ``ForeignChannel`` for a channel of another user, and ``ChatFailed`` for a refused login.
        """
        if frame["type"] == "auth_ok":
            another = self.visit.instance not in ("", frame["instance"])
            # The stored message id is dropped if it belongs to another installation.
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
        raise ChatFailed(f"the web connector refused: {reason}{fix}")

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
                # After the restore of an older store, the server's id is below the stored id; later messages are new.
                self._update_visit(last_id=frame["lastId"])
                self._replaying_history = False
                self._socket = socket
                for unacknowledged_id in tuple(self.unacknowledged):  # The server drops repeated messages.
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


class ChatAnswer:
    """The answer to one sent message; it recognizes the received messages that belong to the answer.

    The first chunk (part) of an answer names the message that it answers. A further chunk names none; it belongs to the
    answer if the chunk before it announced ``more``.
    """

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.more = False

    def includes_message(self, message: Frame) -> bool:
        """Return whether this message is a part of the answer."""
        reply_to = str(message.get("replyTo", ""))
        answers = reply_to.endswith(f":{self.client_id}") if reply_to else self.more
        if answers:
            self.more = bool(message.get("more"))
        return answers


def is_failure(text: str, answer: Frame) -> bool:
    """Return whether the message is Maestro's error text in place of an agent's answer."""
    return bool(answer.get("notice")) and control_word(text) is None


def mention_agent(text: str, agent: str) -> str:
    """Return the text with a mention of the agent, if an agent is given; control words stay unchanged."""
    if not agent or control_word(text) is not None or re.match(rf"\s*@{re.escape(agent)}(?!\w)", text, re.IGNORECASE):
        return text
    return f"@{agent} {text}"


def display_text(message: Frame, address: str = "") -> str:
    """Return a message as text for a terminal, with its file's address and its numbered choices.

    ``address`` is the address of the web connector, to which the path of a file is relative.
    """
    lines = [message["content"]]
    if file := message.get("file"):
        size = f"{file['size'] / 1000:.1f} kB" if file["size"] < MEGABYTE else f"{file['size'] / MEGABYTE:.1f} MB"
        lines.append(f"[file {file['filename']}, {size}: {address}{file['url']}]")
    lines.append("  ".join(f"[{n}] {button['label']}" for n, button in enumerate(message.get("buttons", ()), 1)))
    return without_controls("\n".join(filter(None, lines)))


def resolve_choice(line: str, message: Frame) -> str:
    """Return the text to send for a typed line: the button's value for the number of a button, else the line."""
    values = {str(number): str(button["value"]) for number, button in enumerate(message.get("buttons", ()), 1)}
    return values.get(line.strip(), line)


def web_address(url: str) -> str:
    """Return the HTTP address of a web connector, from the address of its WebSocket."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}"


def without_controls(text: str) -> str:
    """Return a text without control characters, which could move a terminal's cursor."""
    return "".join(character for character in text if character in "\n\t" or unicodedata.category(character) != "Cc")
