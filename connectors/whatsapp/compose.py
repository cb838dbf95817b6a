"""The conversion of outgoing messages to request bodies of WhatsApp's API, and of Markdown to WhatsApp's markup."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from connectors.failures import FailureScope, PermanentSend
from connectors.markdown import SEPARATED_TICKS, SHORT_MARKS, TICKS, ZERO_WIDTH, MarkdownDialect, blocks, render_lines
from maestro.domain.messages import OutgoingMessage

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


def marked(text: str) -> str:
    """Return Markdown text in WhatsApp's markup; a code block that is not closed is closed at the end.

    Marks without text between them stay as they are: WhatsApp would show nothing, and rejects an empty message.
    """
    source = [line for block in blocks(text.split("\n")) for line in block]
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


SHAPES: Mapping[str, MediaShape] = {
    "image/jpeg": MediaShape.IMAGE,
    "image/png": MediaShape.IMAGE,
    "audio/aac": MediaShape.AUDIO,
    "audio/amr": MediaShape.AUDIO,
    "audio/mp4": MediaShape.AUDIO,
    "audio/mpeg": MediaShape.AUDIO,
    "audio/ogg": MediaShape.AUDIO,
    "video/3gpp": MediaShape.VIDEO,
    "video/mp4": MediaShape.VIDEO,
}
"""The content types that WhatsApp shows or plays itself; every other file is a document."""
MAX_BYTES: Mapping[MediaShape, int] = {
    MediaShape.IMAGE: 5 * 1024**2,
    MediaShape.AUDIO: 16 * 1024**2,
    MediaShape.VIDEO: 16 * 1024**2,
    MediaShape.DOCUMENT: 100 * 1024**2,
}


@dataclass(frozen=True)
class WhatsAppUpload:
    """A file uploaded to WhatsApp, and its form."""

    media_id: str
    shape: MediaShape


def media_shape(message: OutgoingMessage, size: int) -> MediaShape:
    """Return the form of a file; a file that is too large for its form, or audio with a caption, is a document."""
    shape = SHAPES.get(message.content_type, MediaShape.DOCUMENT)
    has_caption = bool(message.content.strip())
    loses_caption = shape is MediaShape.AUDIO and has_caption
    return MediaShape.DOCUMENT if loses_caption or size > MAX_BYTES[shape] else shape


def upload_type(message: OutgoingMessage) -> str:
    """Return the content type of an upload: any text is uploaded as plain text, under its own name."""
    kind = message.content_type or (PLAIN if message.path is None else "application/octet-stream")
    return PLAIN if kind.startswith("text/") or kind in _TEXTUAL else kind


def text_body(message: OutgoingMessage) -> Body:
    """Return the body of a text with its buttons, if they fit; raises ``PermanentSend`` for a text that is too long.

    A text that is too long for buttons is sent without them: the text itself explains how to answer.
    """
    content = marked(message.content)
    if len(content) > MAX_TEXT:
        problem = f"the text has {len(content):,} characters; the limit of WhatsApp is {MAX_TEXT:,}"
        raise PermanentSend(problem, FailureScope.MESSAGE)
    if message.buttons and len(message.buttons) <= MAX_ROWS and len(content) <= MAX_BODY:
        return {"type": "interactive", "interactive": _button_choices(message, content)}
    return {"type": "text", "text": {"body": content, "preview_url": False}}


def file_body(message: OutgoingMessage, sent: WhatsAppUpload) -> Body:
    """Return the body of a file with its caption, which is truncated if too long."""
    fields: dict[str, str] = {"id": sent.media_id}
    if message.path is not None and message.content.strip():
        fields["caption"] = truncate(marked(message.content), MAX_BODY)
    if sent.shape is MediaShape.DOCUMENT:
        fields["filename"] = message.filename
    return {"type": sent.shape, sent.shape: fields}


def template_body(message: OutgoingMessage, name: str, language: str) -> Body:
    """Return the body of a template with the text as its only variable, without line breaks and repeated spaces."""
    variable = truncate(" ".join(marked(message.content).split()), MAX_BODY)
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


def truncate(text: str, most: int) -> str:
    """Return the text, truncated to ``most`` characters; a truncated text ends with "…"."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _button_choices(message: OutgoingMessage, content: str) -> Body:
    """Return the buttons of a message as reply buttons if all of them fit, else as a list with the full labels."""
    labels = {f"{message.key}:{number}": button.label for number, button in enumerate(message.buttons)}
    lengths, are_unique = [len(label) for label in labels.values()], len(set(labels.values())) == len(labels)
    body = {"text": content}
    if len(labels) <= MAX_REPLIES and are_unique and max(lengths) <= MAX_REPLY:
        replies = [{"type": "reply", "reply": {"id": key, "title": label}} for key, label in labels.items()]
        return {"type": "button", "body": body, "action": {"buttons": replies}}
    rows = [
        {"id": key, "title": truncate(label, MAX_ROW)}
        | ({"description": truncate(label, MAX_DESCRIPTION)} if len(label) > MAX_ROW else {})
        for key, label in labels.items()
    ]
    return {"type": "list", "body": body, "action": {"button": MENU, "sections": [{"title": MENU, "rows": rows}]}}
