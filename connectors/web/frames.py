"""The frames of the web protocol: parsing of client frames, server frames, and the queue of each socket."""

import asyncio
import json
import re
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from connectors.web.config import MAX_ATTACHMENTS, MAX_CLIENT_ID, MAX_USER_NAME
from maestro.domain.errors import InvalidMessage
from maestro.domain.messages import MAX_CONTENT_CHARS, OutgoingMessage

CHANNEL = re.compile(r"[A-Za-z0-9._:-]{1,128}")
NUMBER = re.compile(r"[0-9]{1,19}")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_ID = 2**63 - 1
MAX_CREDENTIAL = 4096
FILES = "/api/file/"
FILE_PATH = f"{FILES}{{channel}}/{{delivery}}"

Fields = Mapping[str, Any]

RECENT_MESSAGES = 128
RECENT_SECONDS = 30.0


@dataclass(frozen=True)
class WebCredentials:
    """The credentials of a client; ``user_name`` is for display only, ``bot`` declares an automated client."""

    api_key: str = ""
    ticket: str = ""
    resume_token: str = ""
    user_name: str = ""
    bot: bool = False


@dataclass(frozen=True)
class AuthFrame:
    """The first frame of a client; with ``last_id`` None no earlier deliveries are replayed."""

    credentials: WebCredentials
    channel: str
    last_id: int | None


@dataclass(frozen=True)
class ClientMessage:
    """A message of a client, within all limits; ``client_id`` is the client's own id of the message or ""."""

    client_id: str
    content: str
    attachments: tuple[str, ...] = ()


def decode_object(text: str | None) -> Fields:
    """Return the JSON object in a frame or body; raises ``InvalidMessage`` for anything else."""
    if text is None:
        raise InvalidMessage("Send text frames; binary frames are not supported.")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("The frame is not valid JSON.") from error
    if not isinstance(fields, dict):
        raise InvalidMessage("The frame must be a JSON object.")
    return fields


def read_auth(fields: Fields) -> AuthFrame:
    """Read an auth frame; raises ``InvalidMessage`` that names the invalid field."""
    last_id = fields.get("lastId")
    if isinstance(last_id, str) and NUMBER.fullmatch(last_id):
        last_id = int(last_id)
    is_number = isinstance(last_id, int) and not isinstance(last_id, bool)
    if last_id is not None and not (is_number and 0 <= last_id <= MAX_ID):
        raise InvalidMessage("lastId must be an integer of at least 0")
    return AuthFrame(read_credentials(fields), read_channel(fields), last_id)


def read_credentials(fields: Fields) -> WebCredentials:
    """Read the credentials in a frame or body; raises ``InvalidMessage`` that names the invalid field."""
    bot = fields.get("bot")
    if bot is not None and not isinstance(bot, bool):
        raise InvalidMessage("bot must be true or false")
    name = _text_field(fields, "userName", MAX_CREDENTIAL)
    printable = "".join(character if character.isprintable() else " " for character in name)
    return WebCredentials(
        api_key=_text_field(fields, "apiKey", MAX_CREDENTIAL),
        ticket=_text_field(fields, "ticket", MAX_CREDENTIAL),
        resume_token=_text_field(fields, "resumeToken", MAX_CREDENTIAL),
        user_name=" ".join(printable.split())[:MAX_USER_NAME].strip(),
        bot=bool(bot),
    )


def read_channel(fields: Fields) -> str:
    """Read the channel id; "" when the client wants a new channel."""
    value = _text_field(fields, "channelId", MAX_CREDENTIAL)
    if value and not CHANNEL.fullmatch(value):
        raise InvalidMessage("channelId must have 1 to 128 characters of A-Z a-z 0-9 . _ : -")
    return value


def read_message(fields: Fields) -> ClientMessage:
    """Read a message; raises ``InvalidMessage`` that names the exceeded limit or the invalid field."""
    content = fields.get("content")
    attachments = _attachment_ids(fields.get("attachments"))
    if not isinstance(content, str):
        raise InvalidMessage("content must be a string")
    content = clean_text(content)
    if not content.strip() and not attachments:
        raise InvalidMessage("The message is empty.")
    if len(content) > MAX_CONTENT_CHARS:
        raise InvalidMessage(f"The message has {len(content)} characters; the limit is {MAX_CONTENT_CHARS}.")
    return ClientMessage(client_id=read_client_id(fields), content=content, attachments=attachments)


def read_client_id(fields: Fields) -> str:
    """Read the client's own id of a message, "" without one."""
    value = fields.get("clientId")
    if value is None:
        return ""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_CLIENT_ID or not value.isprintable():
        raise InvalidMessage(f"clientId must be a string of 1 to {MAX_CLIENT_ID} printable characters")
    return value


def clean_text(text: str) -> str:
    """Drop NUL and replace lone surrogates, because stores and providers reject both."""
    return LONE_SURROGATE.sub("\ufffd", text.replace("\0", ""))


def ack_frame(message_id: str, *, duplicate: bool, client: str) -> Fields:
    """Return the acknowledgement of a stored message."""
    frame = {"type": "ack", "messageId": message_id, "duplicate": duplicate}
    return {**frame, "clientId": client} if client else frame


def delivery_frame(message: OutgoingMessage) -> Fields:
    """Return the frame of one chunk.

    ``more`` is set in every chunk of a text but the last, ``notice`` in messages of Maestro itself. When a user presses
    one of the ``buttons``, the client sends the button's value. With a ``file``, the content is the caption.
    """
    frame: Fields = {
        "type": "message",
        "id": message.id,
        "channelId": message.address.channel,
        "content": "" if message.filename and message.path is None else message.content,
    }
    optional: Fields = {
        "replyTo": message.reply_to,
        "more": message.more,
        "notice": message.notice,
        "buttons": [button.model_dump() for button in message.buttons],
        "file": _file_fields(message),
    }
    return {**frame, **{name: value for name, value in optional.items() if value}}


def error_frame(kind: str, message: str, client: str = "") -> Fields:
    """Return the frame of a failure; ``client`` is the clientId of the message that failed."""
    frame = {"type": "error", "error": kind, "message": message}
    return {**frame, "clientId": client} if client else frame


def _file_fields(message: OutgoingMessage) -> Fields | None:
    """Return the file's description for a client; ``url`` is a path on the web connector's port."""
    if not message.filename:
        return None
    size = len(message.content.encode())
    if message.path is not None:
        size = message.size  # What was stored on another host is not here until a client asks for it.
        with suppress(OSError):
            size = message.path.stat().st_size
    return {
        "id": str(message.id),
        "filename": message.filename,
        "contentType": message.content_type or ("text/markdown" if message.path is None else ""),
        "size": size,
        "url": f"{FILES}{message.address.channel}/{message.id}",
    }


def _text_field(fields: Fields, name: str, limit: int) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidMessage(f"{name} must be a string")
    if len(value) > limit:
        raise InvalidMessage(f"{name} is longer than {limit} characters")
    return clean_text(value)


def _attachment_ids(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) and 0 < len(item) <= 128 for item in value):
        raise InvalidMessage("attachments must be a list of upload ids")
    if len(value) > MAX_ATTACHMENTS:
        raise InvalidMessage(f"A message carries at most {MAX_ATTACHMENTS} attachments.")
    return tuple(dict.fromkeys(clean_text(item) for item in value))


class SocketQueue:
    """The outgoing frames of one socket, in order; each delivery is queued once, by its id.

    Live deliveries are held back until ``replay_missed``, so that missed deliveries go first. When more than ``limit``
    frames wait, the client reads too slowly: ``wait_until_full`` then raises ``TooSlow`` and the socket is closed.
    """

    def __init__(self, limit: int, cursor: int) -> None:
        self.cursor = cursor
        self._limit = limit
        self._frames: deque[str] = deque()
        self._held: list[OutgoingMessage] | None = []
        self._more = asyncio.Event()
        self._full = asyncio.Event()
        self._written = asyncio.Event()

    def put_frame(self, frame: Fields) -> None:
        """Queue a frame; if too many frames wait, drop the frame and mark the queue as full."""
        if len(self._frames) < self._limit:
            self._append_frame(frame)
        else:
            self._full.set()

    def put_optional_frame(self, frame: Fields) -> None:
        """Queue an optional frame; drop the frame if other frames wait."""
        if not self._frames and self._held is None:
            self.put_frame(frame)

    def push_delivery(self, message: OutgoingMessage) -> None:
        """Queue a live delivery, unless this socket already got the delivery."""
        if self._held is not None:
            if len(self._held) < self._limit:
                self._held.append(message)
            else:
                self._full.set()
        elif message.id > self.cursor:
            self.cursor = message.id
            self.put_frame(delivery_frame(message))

    async def replay_missed_page(self, page: Iterable[OutgoingMessage]) -> None:
        """Queue a page of missed deliveries, oldest first, and return when the page is written to the socket.

        Live deliveries stay held back; those that were in the page are dropped.
        """
        for message in page:
            if message.id > self.cursor:
                self.cursor = message.id
                self._append_frame(delivery_frame(message))
        self._held = [message for message in self._held or () if message.id > self.cursor]
        await self._written.wait()

    def replay_missed(self, missed: Iterable[OutgoingMessage]) -> None:
        """Queue the last missed deliveries, oldest first, then stop holding back live deliveries.

        No delivery is lost or sent twice: the method does not yield to other tasks, and the queue was subscribed before
        ``missed`` was read.
        """
        waiting = {message.id: message for message in (*missed, *(self._held or ()))}
        self._held = None
        self._limit += len(waiting)  # Replayed messages do not count against the limit of unread frames.
        for _, message in sorted(waiting.items()):
            self.push_delivery(message)

    async def write_to_socket(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Write the frames to the socket until cancelled; one task per socket runs this method."""
        while True:
            await self._more.wait()
            while self._frames:
                await send(self._frames.popleft())
            self._more.clear()
            self._written.set()

    async def wait_until_full(self) -> None:
        """Raise ``TooSlow`` as soon as more than the allowed number of frames wait."""
        await self._full.wait()
        raise TooSlow

    def _append_frame(self, frame: Fields) -> None:
        self._frames.append(json.dumps(frame, ensure_ascii=False, separators=(",", ":")))
        self._more.set()
        self._written.clear()


class SocketHub:
    """The sockets of each channel.

    The hub also holds each delivery for 30 seconds. A client that reconnects before the delivery's row is updated gets
    the delivery from here.
    """

    def __init__(self) -> None:
        self._queues: defaultdict[str, list[SocketQueue]] = defaultdict(list)
        self._recent: deque[tuple[float, OutgoingMessage]] = deque(maxlen=RECENT_MESSAGES)

    @property
    def client_count(self) -> int:
        """The number of authenticated sockets."""
        return sum(len(queues) for queues in self._queues.values())

    @contextmanager
    def subscribe(self, channel: str, queue: SocketQueue) -> Iterator[None]:
        """Pass all deliveries and typing frames of the channel to the queue while the block runs."""
        self._queues[channel].append(queue)
        try:
            yield
        finally:
            self._queues[channel].remove(queue)
            if not self._queues[channel]:
                del self._queues[channel]

    def push_delivery(self, message: OutgoingMessage) -> None:
        """Pass a delivery to every socket of its channel."""
        self._recent.append((time.monotonic(), message))
        for queue in self._queues.get(message.address.channel, ()):
            queue.push_delivery(message)

    def show_typing(self, channel: str) -> None:
        """Send a typing frame to every socket of the channel."""
        for queue in self._queues.get(channel, ()):
            queue.put_optional_frame({"type": "typing", "channelId": channel})

    def list_recent(self, channel: str, after_id: int) -> Sequence[OutgoingMessage]:
        """Return the channel's deliveries of the last 30 seconds after the delivery ``after_id``."""
        oldest = time.monotonic() - RECENT_SECONDS
        return [
            message
            for at, message in self._recent
            if at >= oldest and message.address.channel == channel and message.id > after_id
        ]


class TooSlow(Exception):
    """The client does not read its frames; its socket is closed, and the client may resume."""
