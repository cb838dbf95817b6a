"""Sends to WhatsApp: texts, files and buttons, or a template once the user's last message is 24 hours old."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from connectors.account import SendRateLimiter, read_content
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
from connectors.markdown import (
    SEPARATED_TICKS,
    SHORT_MARKS,
    TICKS,
    ZERO_WIDTH,
    MarkdownDialect,
    render_blocks,
    render_lines,
)
from connectors.whatsapp.api import GraphClient, PairRateLimit, upload_failure
from connectors.whatsapp.platform import WhatsAppOptions
from maestro.domain.messages import OutgoingMessage, Receipt

Body = Mapping[str, Any]

MAX_TEXT = 4_096
MAX_BODY = 1_024
"""The most characters of a text with buttons, of a caption, and of a template's variable."""
MAX_REPLIES, MAX_ROWS = 3, 10
MAX_REPLY, MAX_ROW, MAX_DESCRIPTION = 20, 24, 72
MENU = "Choose"
"""The label of the button that opens a list."""
PLAIN = "text/plain"

_TEXTUAL = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})

LOOK_SECONDS = 0.5

WINDOW = timedelta(hours=24)
"""The time after a user's message in which WhatsApp accepts free text to this user."""
MAX_REFUSALS = 5
"""The number of rate limits in a row after which the wait stops growing, at about 17 minutes."""
MOST_UPLOADS = 100


def render_markup(text: str) -> str:
    """Return Markdown text in WhatsApp's markup; a code block that is not closed is closed at the end.

    Marks without text between them stay as they are: WhatsApp would show nothing, and rejects an empty message.
    """
    source = [line for block in render_blocks(text.split("\n")) for line in block]
    rendered = list(render_lines("\n".join(source), DIALECT))
    is_open = sum(line == TICKS for line in rendered) % 2 == 1
    result = "\n".join([*rendered, TICKS] if is_open else rendered)
    return result if result.strip() else text


def _escape_ticks(text: str) -> str:
    """Return text in which three backticks do not begin a code block."""
    return text.replace(TICKS, SEPARATED_TICKS)


def _render_link(label: str, url: str) -> str:
    text = _escape_ticks(label).strip()
    return f"{text} ({url})" if text and text != url else url


DIALECT = MarkdownDialect(
    plain=_escape_ticks,
    # The markup has no escape: a zero-width character after a mark keeps WhatsApp from interpreting the mark.
    literal=lambda mark: mark + (ZERO_WIDTH if mark in "*_~`>" else ""),
    code=lambda text: f"`{_escape_ticks(text)}`",
    block=_escape_ticks,
    link=_render_link,
    around=SHORT_MARKS,
)


class MediaShape(StrEnum):
    """The form in which WhatsApp shows a file."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    DOCUMENT = "document"


SHOWN_TYPES = frozenset(
    {
        *("image/jpeg", "image/png", "video/3gpp", "video/mp4"),
        *("audio/aac", "audio/amr", "audio/mp4", "audio/mpeg", "audio/ogg"),
    }
)
"""The content types that WhatsApp shows or plays itself; every other file is a document."""
MAX_BYTES: Mapping[MediaShape, int] = {
    MediaShape.IMAGE: 5 * 1024**2,
    MediaShape.AUDIO: 16 * 1024**2,
    MediaShape.VIDEO: 16 * 1024**2,
    MediaShape.DOCUMENT: 100 * 1024**2,
}


def choose_media_shape(message: OutgoingMessage, size: int) -> MediaShape:
    """Return the form of a file; a file that is too large for its form, or audio with a caption, is a document."""
    kind = message.content_type
    shape = MediaShape(kind.partition("/")[0]) if kind in SHOWN_TYPES else MediaShape.DOCUMENT
    loses_caption = shape is MediaShape.AUDIO and bool(message.content.strip())
    return MediaShape.DOCUMENT if loses_caption or size > MAX_BYTES[shape] else shape


def choose_upload_type(message: OutgoingMessage) -> str:
    """Return the content type of an upload: any text is uploaded as plain text, under its own name."""
    kind = message.content_type or (PLAIN if message.path is None else "application/octet-stream")
    return PLAIN if kind.startswith("text/") or kind in _TEXTUAL else kind


def build_text_body(message: OutgoingMessage) -> Body:
    """Return the body of a text with its buttons, if they fit; raises ``PermanentSend`` for a text that is too long.

    A text that is too long for buttons is sent without them: the text itself explains how to answer.
    """
    content = render_markup(message.content)
    if len(content) > MAX_TEXT:
        problem = f"the text has {len(content):,} characters; the limit of WhatsApp is {MAX_TEXT:,}"
        raise PermanentSend(problem, FailureScope.MESSAGE)
    if message.buttons and len(message.buttons) <= MAX_ROWS and len(content) <= MAX_BODY:
        return {"type": "interactive", "interactive": _button_choices(message, content)}
    return {"type": "text", "text": {"body": content, "preview_url": False}}


def build_file_body(message: OutgoingMessage, media_id: str, shape: MediaShape) -> Body:
    """Return the body of an uploaded file with its caption, which is truncated if too long."""
    fields = {"id": media_id}
    if message.path is not None and message.content.strip():
        fields["caption"] = truncate_text(render_markup(message.content), MAX_BODY)
    if shape is MediaShape.DOCUMENT:
        fields["filename"] = message.filename
    return {"type": shape, shape: fields}


def build_template_body(message: OutgoingMessage, name: str, language: str) -> Body:
    """Return the body of a template with the text as its only variable, without line breaks and repeated spaces."""
    variable = truncate_text(" ".join(render_markup(message.content).split()), MAX_BODY)
    parts = [{"type": "body", "parameters": [{"type": "text", "text": variable}]}]
    return {"type": "template", "template": {"name": name, "language": {"code": language}, "components": parts}}


def add_receiver(message: OutgoingMessage, body: Body, *, quotes: bool) -> Body:
    """Return a body with the receiver and the message's key, which WhatsApp returns in every status."""
    addressed_body = {**receiver_fields(message.address.channel), **body}
    if message.key:
        addressed_body["biz_opaque_callback_data"] = message.key
    if quotes and message.reply_to:
        addressed_body["context"] = {"message_id": message.reply_to}
    return addressed_body


def receiver_fields(channel: str) -> Body:
    """Return the receiver of a message or reaction: a number, or Meta's id of a user without a visible number."""
    return {"recipient_type": "individual", "to" if channel.isdecimal() else "recipient": channel}


def truncate_text(text: str, limit: int) -> str:
    """Return the text, truncated to ``limit`` characters; a truncated text ends with "…"."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _button_choices(message: OutgoingMessage, content: str) -> Body:
    """Return the buttons of a message as reply buttons if all of them fit, else as a list with the full labels."""
    labels = {f"{message.key}:{number}": button.label for number, button in enumerate(message.buttons)}
    lengths, are_unique = [len(label) for label in labels.values()], len(set(labels.values())) == len(labels)
    body = {"text": content}
    if len(labels) <= MAX_REPLIES and are_unique and max(lengths) <= MAX_REPLY:
        replies = [{"type": "reply", "reply": {"id": key, "title": label}} for key, label in labels.items()]
        return {"type": "button", "body": body, "action": {"buttons": replies}}
    rows = [
        {"id": key, "title": truncate_text(label, MAX_ROW)}
        | ({"description": truncate_text(label, MAX_DESCRIPTION)} if len(label) > MAX_ROW else {})
        for key, label in labels.items()
    ]
    return {"type": "list", "body": body, "action": {"button": MENU, "sections": [{"title": MENU, "rows": rows}]}}


class StatusWaiter:
    """The wait for the status report after an ambiguous send: WhatsApp reports statuses but cannot be queried."""

    def __init__(self, context: ConnectorContext, seconds: float, clock: Callable[[], datetime]) -> None:
        self._context = context
        self._seconds = timedelta(seconds=seconds)
        self._clock = clock
        self._since: datetime | None = None

    def start_waiting(self) -> None:
        """Expect status reports from now on; Meta repeats those that were not acknowledged."""
        self._since = self._clock()

    async def find_message_id(self, message: OutgoingMessage) -> Receipt:
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
        self._uploads: dict[int, tuple[str, MediaShape]] = {}

    async def send_message(self, message: OutgoingMessage) -> Receipt:
        """Send a chunk once, as a message or as a file; raises a ``SendFailure``.

        Messages do not follow a user to a new number: the old number may belong to another user by now.
        """
        body = await self._compose_body(message)
        channel = message.address.channel
        await self._rate.wait_for_channel(channel)
        quotes = self._options.quote_replies == "always"
        try:
            answer = await self._graph.post_message(add_receiver(message, body, quotes=quotes))
        except PairRateLimit as limit:
            # Each rate limit in a row multiplies the wait before the next message to the user by four.
            refusals = self._refused.get(channel, 0)
            self._refused[channel] = min(refusals + 1, MAX_REFUSALS)
            raise RetryableSend(str(limit), limit.retry_after * float(4**refusals)) from None
        match answer.get("messages"):
            case [{"id": str(message_id)}, *_] if message_id:
                self._refused.pop(channel, None)
                self._uploads.pop(message.id, None)
                return Receipt(platform_message_id=message_id)
        raise AmbiguousSend("WhatsApp's answer could not be read")

    async def _compose_body(self, message: OutgoingMessage) -> Body:
        heard_at = await self._context.last_heard(message.address.channel)
        if heard_at is not None and datetime.now(UTC) - heard_at < WINDOW:
            if message.filename:
                return build_file_body(message, *await self._upload_file(message))
            return build_text_body(message)
        if not self._options.template:
            raise PermanentSend(
                "the user wrote more than 24 hours ago; the user's next message opens the chat again. With the setting "
                "template, messages in the meantime are sent as a template",
                FailureScope.CHANNEL,
            )
        if message.filename:
            # Only this message fails, not the chat: texts still reach the chat as a template.
            problem = "the user wrote more than 24 hours ago, and a template cannot contain a file"
            raise PermanentSend(problem, FailureScope.MESSAGE)
        return build_template_body(message, self._options.template, self._options.template_language)

    async def _upload_file(self, message: OutgoingMessage) -> tuple[str, MediaShape]:
        """Upload the file of a message, once for all its retries; return the upload's id and the file's form."""
        known = self._uploads.get(message.id)
        if known is not None:
            return known
        content = await read_content(message)
        shape = choose_media_shape(message, len(content))
        kind = choose_upload_type(message)
        try:
            media_id = await self._graph.upload_file(content, message.filename, kind)
        except SendFailure as failure:
            raise upload_failure(failure, kind) from None
        if len(self._uploads) >= MOST_UPLOADS:
            del self._uploads[next(iter(self._uploads))]
        self._uploads[message.id] = media_id, shape
        return self._uploads[message.id]
