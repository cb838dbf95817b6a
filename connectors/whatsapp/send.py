"""Sends to WhatsApp: texts and files under their keys, within 24 hours of the user's last message."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from connectors.account import SendRateLimiter
from connectors.base import ConnectorContext
from connectors.failures import (
    AmbiguousSend,
    FailureScope,
    NotDispatched,
    PermanentSend,
    RetryableSend,
    SendFailure,
    Unsettled,
)
from connectors.media import read_content
from connectors.whatsapp import compose
from connectors.whatsapp.api import GraphClient, PairRateLimit, upload_failure
from connectors.whatsapp.config import WhatsAppOptions
from maestro.domain.messages import OutgoingMessage, Receipt

LOOK_SECONDS = 0.5

WINDOW = timedelta(hours=24)
"""The time after a user's message in which WhatsApp accepts free text to this user."""
CLOSED = (
    "the user wrote more than 24 hours ago; the user's next message opens the chat again. With the setting "
    "template, messages in the meantime are sent as a template"
)
NO_FILES = "the user wrote more than 24 hours ago, and a template cannot contain a file"
MAX_REFUSALS = 5
"""The number of rate limits in a row after which the wait stops growing, at about 17 minutes."""
MOST_UPLOADS = 100


class StatusWaiter:
    """A wait for the status that settles an ambiguous send: WhatsApp reports statuses but cannot be queried."""

    def __init__(self, context: ConnectorContext, seconds: float, clock: Callable[[], datetime]) -> None:
        self._context = context
        self._seconds = timedelta(seconds=seconds)
        self._clock = clock
        self._since: datetime | None = None

    def start(self) -> None:
        """Start to expect statuses: Meta repeats those that were not acknowledged."""
        self._since = self._clock()

    async def find(self, message: OutgoingMessage) -> Receipt:
        """Return WhatsApp's id of the message; raises ``Unsettled`` when no status arrives in time.

        Before the webhook is open no status can arrive: ``NotDispatched`` then says that WhatsApp cannot be asked now.
        """
        while True:
            receipt = await self._context.receipt(message.key)
            if receipt is not None:
                return receipt
            if self._since is None:
                raise NotDispatched("the connector has not started yet, so no status of the message can arrive")
            until = max(message.tried_at or self._since, self._since) + self._seconds
            left = (until - self._clock()).total_seconds()
            if left <= 0:
                raise Unsettled(f"WhatsApp reported no status within {self._seconds.total_seconds():g} s")
            await asyncio.sleep(min(left, LOOK_SECONDS))


class WhatsAppSender:
    """The sends of one number, with a rate limit for each chat."""

    def __init__(self, graph: GraphClient, context: ConnectorContext, options: WhatsAppOptions) -> None:
        self._graph = graph
        self._context = context
        self._options = options
        self._rate = SendRateLimiter(lambda _: options.pair_seconds)
        self._refused: dict[str, int] = {}
        self._uploads: dict[int, compose.WhatsAppUpload] = {}

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send a chunk once, as a message or as a file; raises a ``SendFailure``.

        Messages do not follow a user to a new number: the old number may belong to another user by now.
        """
        body = await self._compose(message)
        channel = message.address.channel
        await self._rate.wait(channel)
        quotes = self._options.quote_replies == "always"
        try:
            answer = await self._graph.post(compose.add_receiver(message, body, quotes=quotes))
        except PairRateLimit as limit:
            raise RetryableSend(str(limit), self._next_pause(channel, limit.retry_after)) from None
        match answer.get("messages"):
            case [{"id": str(message_id)}, *_] if message_id:
                self._refused.pop(channel, None)
                self._uploads.pop(message.id, None)
                return Receipt(platform_message_id=message_id)
        raise AmbiguousSend("WhatsApp's answer could not be read")

    async def react(self, channel: str, message_id: str, emoji: str) -> None:
        """Add a reaction to a message; raises a ``SendFailure``."""
        part = {"message_id": message_id, "emoji": emoji}
        await self._graph.post({**compose.receiver_fields(channel), "type": "reaction", "reaction": part})

    async def show_typing(self, message_id: str) -> None:
        """Mark a message as read and show that an answer is being written; raises a ``SendFailure``.

        WhatsApp shows this for 25 seconds, or until the answer.
        """
        await self._graph.post({"status": "read", "message_id": message_id, "typing_indicator": {"type": "text"}})

    async def _compose(self, message: OutgoingMessage) -> compose.Body:
        heard_at = await self._context.last_heard(message.address.channel)
        if heard_at is not None and datetime.now(UTC) - heard_at < WINDOW:
            if message.filename:
                return compose.file_body(message, await self._upload(message))
            return compose.text_body(message)
        if not self._options.template:
            raise PermanentSend(CLOSED, FailureScope.CHANNEL)
        if message.filename:
            # Only this message fails, not the chat: texts still reach the chat as a template.
            raise PermanentSend(NO_FILES, FailureScope.MESSAGE)
        return compose.template_body(message, self._options.template, self._options.template_language)

    async def _upload(self, message: OutgoingMessage) -> compose.WhatsAppUpload:
        """Upload the file of a message, once: while the message is retried, the id of the first upload is reused."""
        known = self._uploads.get(message.id)
        if known is not None:
            return known
        content = await read_content(message)
        shape = compose.media_shape(message, len(content))
        kind = compose.upload_type(message)
        try:
            media_id = await self._graph.upload(content, message.filename, kind)
        except SendFailure as failure:
            raise upload_failure(failure, kind) from None
        if len(self._uploads) >= MOST_UPLOADS:
            del self._uploads[next(iter(self._uploads))]
        self._uploads[message.id] = compose.WhatsAppUpload(media_id, shape)
        return self._uploads[message.id]

    def _next_pause(self, channel: str, requested: timedelta) -> timedelta:
        """Return the wait before the next message to a user; each rate limit in a row multiplies the wait by four."""
        refusals = self._refused.get(channel, 0)
        self._refused[channel] = min(refusals + 1, MAX_REFUSALS)
        return requested * float(4**refusals)
