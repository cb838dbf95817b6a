"""Sends chunks and files under their keys, at the pace of each chat, within the 24 hours after a person wrote."""

import asyncio
from datetime import UTC, datetime, timedelta

from connectors.base import ConnectorContext
from connectors.outcomes import PermanentSend, RetryableSend, Scope
from connectors.pace import Pace
from connectors.whatsapp import compose
from connectors.whatsapp.api import Graph
from connectors.whatsapp.config import WhatsAppOptions
from connectors.whatsapp.errors import PAIR, Busy, GraphTrouble, Unsure, send_failure, upload_failure
from maestro.domain.messages import OutgoingMessage, Receipt

WINDOW = timedelta(hours=24)
"""How long after a person wrote they may be written to in words of our own."""
CLOSED = (
    "more than 24 hours have passed since they wrote last; their next message opens the chat. With the setting "
    "template, what is said meanwhile goes as a template"
)
NO_FILES = "more than 24 hours have passed since they wrote last, and a template brings no file"
LONGEST_ROW = 5
"""After so many refusals in a row the wait does not grow any more: it is about 17 minutes."""
MOST_UPLOADS = 100


class Sender:
    """What one number sends."""

    def __init__(self, graph: Graph, context: ConnectorContext, options: WhatsAppOptions) -> None:
        self._graph = graph
        self._context = context
        self._options = options
        self._pace = Pace(lambda _: options.pair_seconds)
        self._refused: dict[str, int] = {}
        self._uploads: dict[int, compose.File] = {}

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send a chunk, or what goes as a file, once; raises a ``SendFailure``.

        Nothing follows a person to another number: the old one may be somebody else's by now, who is answered here.
        """
        body = await self._composed(message)
        channel = message.address.channel
        await self._pace.wait(channel)
        quotes = self._options.quote_replies == "always"
        try:
            known_as = await self._known_as(compose.addressed(message, body, quotes=quotes))
        except Busy as busy:
            raise RetryableSend(str(busy), self._wait(channel, busy)) from None
        except GraphTrouble as trouble:
            raise send_failure(trouble) from None
        self._refused.pop(channel, None)
        self._uploads.pop(message.id, None)
        return Receipt(platform_message_id=known_as)

    async def react(self, channel: str, message_id: str, emoji: str) -> None:
        """Put a reaction to a message; raises a ``GraphTrouble``."""
        part = {"message_id": message_id, "emoji": emoji}
        await self._graph.message({**compose.receiver(channel), "type": "reaction", "reaction": part})

    async def show_typing(self, message_id: str) -> None:
        """Show below a message that an answer is being written, and that it was read; raises a ``GraphTrouble``.

        WhatsApp shows it for 25 seconds, or until the answer.
        """
        await self._graph.message({"status": "read", "message_id": message_id, "typing_indicator": {"type": "text"}})

    async def _known_as(self, body: compose.Body) -> str:
        answer = await self._graph.message(body)
        match answer.get("messages"):
            case [{"id": str(known_as)}, *_] if known_as:
                return known_as
        raise Unsure("WhatsApp's answer could not be read")

    async def _composed(self, message: OutgoingMessage) -> compose.Body:
        if not await self._is_open(message.address.channel):
            return self._as_template(message)
        return compose.file(message, await self._uploaded(message)) if message.filename else compose.text(message)

    async def _is_open(self, channel: str) -> bool:
        heard = await self._context.last_heard(channel)
        return heard is not None and datetime.now(UTC) - heard < WINDOW

    def _as_template(self, message: OutgoingMessage) -> compose.Body:
        if not self._options.template:
            raise PermanentSend(CLOSED, Scope.CHANNEL)
        if message.filename:
            # Words still go there as a template, so that the chat is not closed.
            raise PermanentSend(NO_FILES, Scope.MESSAGE)
        return compose.template(message, self._options.template, self._options.template_language)

    async def _uploaded(self, message: OutgoingMessage) -> compose.File:
        """Return what WhatsApp has the file as; one whose message failed need not be brought again."""
        known = self._uploads.get(message.id)
        if known is not None:
            return known
        content = await asyncio.to_thread(_content, message)
        shape = compose.shape_of(message, len(content))
        kind = compose.uploaded_as(message)
        try:
            media_id = await self._graph.upload(content, message.filename, kind)
        except GraphTrouble as trouble:
            raise upload_failure(trouble, kind) from None
        if len(self._uploads) >= MOST_UPLOADS:
            del self._uploads[next(iter(self._uploads))]
        self._uploads[message.id] = compose.File(media_id, shape)
        return self._uploads[message.id]

    def _wait(self, channel: str, busy: Busy) -> timedelta:
        """Return after how long to come back: each refusal for one person makes it four times as long."""
        if busy.code != PAIR:
            return busy.after
        row = self._refused.get(channel, 0)
        self._refused[channel] = min(row + 1, LONGEST_ROW)
        return busy.after * float(4**row)


def _content(message: OutgoingMessage) -> bytes:
    return message.content.encode() if message.path is None else message.path.read_bytes()
