"""Outgoing messages as request bodies of WhatsApp's API, and Markdown as WhatsApp's markup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from connectors.failures import FailureScope, PermanentSend
from connectors.markdown import APART, TICKS, ZERO_WIDTH, MarkdownDialect, blocks, lines
from maestro.domain.messages import Button, OutgoingMessage

_AROUND = {"both": ("*_", "_*"), "bold": ("*", "*"), "struck": ("~", "~"), "italic": ("_", "_")}

Body = Mapping[str, Any]

MAX_TEXT = 4_096
MAX_BODY = 1_024
"""The most characters of a text with buttons, of a caption, and of a template's variable."""
MAX_REPLIES, MAX_ROWS = 3, 10
MAX_REPLY, MAX_ROW, MAX_DESCRIPTION = 20, 24, 72
MENU = "Choose"
"""The label of the button that opens a list."""
PLAIN = "text/plain"
ANY_FILE = "application/octet-stream"

_TEXTUAL = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})


def marked(text: str) -> str:
    """Return the text in WhatsApp's markup; a code block that is not closed is closed at the end.

    Marks without text between them stay as they are: WhatsApp would show nothing, and rejects an empty message.
    """
    source = [line for block in blocks(text.split("\n")) for line in block]
    written = list(lines("\n".join(source), DIALECT))
    is_open = sum(line == TICKS for line in written) % 2 == 1
    shown = "\n".join([*written, TICKS] if is_open else written)
    return shown if shown.strip() else text


def _plain(text: str) -> str:
    """Return text in which no three backticks begin a code block."""
    return text.replace(TICKS, APART)


def _literal(mark: str) -> str:
    """Return a mark that WhatsApp does not interpret; its markup has no escape."""
    return mark + (ZERO_WIDTH if mark in "*_~`>" else "")


def _code(text: str) -> str:
    return f"`{_plain(text)}`"


def _link(label: str, url: str) -> str:
    said = _plain(label).strip()
    return f"{said} ({url})" if said and said != url else url


DIALECT = MarkdownDialect(plain=_plain, literal=_literal, code=_code, block=_plain, link=_link, around=_AROUND)


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


def shape_of(message: OutgoingMessage, size: int) -> MediaShape:
    """Return the form of a file; one that is too large, or audio with a caption, is a document."""
    shape = SHAPES.get(message.content_type, MediaShape.DOCUMENT)
    silenced = shape is MediaShape.AUDIO and bool(message.content.strip())
    return MediaShape.DOCUMENT if silenced or size > MAX_BYTES[shape] else shape


def uploaded_as(message: OutgoingMessage) -> str:
    """Return the content type of an upload: any text is uploaded as plain text, under its own name."""
    kind = message.content_type or (PLAIN if message.path is None else ANY_FILE)
    return PLAIN if kind.startswith("text/") or kind in _TEXTUAL else kind


def text(message: OutgoingMessage) -> Body:
    """Return a text with its buttons, if they fit; raises ``PermanentSend`` for a text that is too long.

    A text that is too long for buttons is sent without them: the text itself explains how to answer.
    """
    written = marked(message.content)
    if len(written) > MAX_TEXT:
        raise PermanentSend(
            f"the text has {len(written):,} characters, WhatsApp takes {MAX_TEXT:,}", FailureScope.MESSAGE
        )
    if message.buttons and len(message.buttons) <= MAX_ROWS and len(written) <= MAX_BODY:
        return {"type": "interactive", "interactive": _choices(message, written)}
    return {"type": "text", "text": {"body": written, "preview_url": False}}


def file(message: OutgoingMessage, sent: WhatsAppUpload) -> Body:
    """Return a file with its caption, which is truncated if too long."""
    part: dict[str, str] = {"id": sent.media_id}
    if message.path is not None and message.content.strip():
        part["caption"] = cut(marked(message.content), MAX_BODY)
    if sent.shape is MediaShape.DOCUMENT:
        part["filename"] = message.filename
    return {"type": sent.shape, sent.shape: part}


def template(message: OutgoingMessage, name: str, language: str) -> Body:
    """Return the text as the only variable of a template, without line breaks and repeated spaces."""
    said = cut(" ".join(marked(message.content).split()), MAX_BODY)
    parts = [{"type": "body", "parameters": [{"type": "text", "text": said}]}]
    return {"type": "template", "template": {"name": name, "language": {"code": language}, "components": parts}}


def addressed(message: OutgoingMessage, body: Body, *, quotes: bool) -> Body:
    """Return a body with its receiver and the message's key, which WhatsApp returns in every status."""
    whole = {**receiver(message.address.channel), **body}
    if message.key:
        whole["biz_opaque_callback_data"] = message.key
    if quotes and message.reply_to:
        whole["context"] = {"message_id": message.reply_to}
    return whole


def receiver(channel: str) -> Body:
    """Return the receiver of a message or reaction: a number, or Meta's id of a user without a visible number."""
    return {"recipient_type": "individual", "to" if channel.isdecimal() else "recipient": channel}


def cut(text: str, most: int) -> str:
    """Return a text of at most this length; a truncated text ends with a visible mark."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _choices(message: OutgoingMessage, written: str) -> Body:
    """Return reply buttons if all of them fit, else a list with the full labels."""
    labels = [button.label for button in message.buttons]
    fit = len(labels) <= MAX_REPLIES and len(set(labels)) == len(labels) and max(map(len, labels)) <= MAX_REPLY
    body = {"text": written}
    if fit:
        return {"type": "button", "body": body, "action": {"buttons": _replies(message.key, labels)}}
    rows = _rows(message.key, message.buttons)
    return {"type": "list", "body": body, "action": {"button": MENU, "sections": [{"title": MENU, "rows": rows}]}}


def _replies(key: str, labels: Sequence[str]) -> list[Body]:
    return [
        {"type": "reply", "reply": {"id": f"{key}:{number}", "title": label}} for number, label in enumerate(labels)
    ]


def _rows(key: str, buttons: Sequence[Button]) -> list[Body]:
    return [_row(f"{key}:{number}", button.label) for number, button in enumerate(buttons)]


def _row(handed_back: str, label: str) -> Body:
    row = {"id": handed_back, "title": cut(label, MAX_ROW)}
    return row if len(label) <= MAX_ROW else {**row, "description": cut(label, MAX_DESCRIPTION)}
