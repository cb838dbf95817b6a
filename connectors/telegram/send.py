"""Sends to Telegram: a message or file as HTML, or as plain text if Telegram cannot parse the HTML."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    LinkPreviewOptions,
    Message,
    ReplyParameters,
)
from telegram.constants import ParseMode

from connectors.capabilities import LengthUnit
from connectors.failures import FailureScope, PermanentSend, SendFailure
from connectors.media import read_content
from connectors.splitting import length, split
from connectors.telegram.api import (
    EMPTY_TEXT,
    FILE_SECONDS,
    NO_PICTURE,
    UNCHANGED,
    UNREADABLE,
    TelegramClient,
    refused_with,
    telegram_errors,
)
from connectors.telegram.render import render, without_mentions
from maestro.domain.messages import OutgoingMessage, Receipt

MAX_LENGTH = 4_096
MAX_CAPTION = 1_024
MAX_FILE_BYTES = 50 * 1000**2
MAX_PICTURE_BYTES = 10 * 1000**2
PICTURES = frozenset({"image/jpeg", "image/png"})
Sent = TypeVar("Sent")
Arguments = dict[str, Any]
"""Keyword arguments of the library's send methods."""

log = structlog.get_logger(__name__)


def html_length(text: str) -> int:
    """Return an upper bound of the length that Telegram counts for a text: the length of its HTML, tags included."""
    return length(render(text), LengthUnit.UTF16)


def message_number(message_id: str) -> int | None:
    """Return Telegram's number of a message from its id in the inbox; None if the id has no number."""
    number = message_id.partition(":")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else None


def build_destination(message: OutgoingMessage, chat: str, *, quoting: bool) -> Arguments:
    """Return the chat, topic, reply and buttons of a message; raises ``PermanentSend`` for an invalid chat id."""
    if message_number(chat.removeprefix("-")) is None:
        raise PermanentSend("the chat id is not a valid Telegram id", FailureScope.CHANNEL)
    answered = message_number(message.reply_to) if quoting else None
    return {
        "chat_id": int(chat),
        "message_thread_id": message_number(message.address.thread),
        "reply_parameters": ReplyParameters(answered, allow_sending_without_reply=True) if answered else None,
        "reply_markup": _button_keyboard(message),
    }


async def post(client: TelegramClient, message: OutgoingMessage, to: Arguments) -> Receipt:
    """Post a message without mentions and link previews; raises a ``SendFailure``."""

    async def send(text: str, parse_mode: str | None) -> Message:
        return await client.send_message(text=text, parse_mode=parse_mode, link_preview_options=_no_preview(), **to)

    return _receipt_of(await _send_html(message.content, send))


async def edit(client: TelegramClient, message: OutgoingMessage, to: Arguments) -> None:
    """Edit a sent message; an edit without a change succeeds. Raises a ``SendFailure``."""
    at = {"chat_id": to["chat_id"], "message_id": message_number(message.edits), "reply_markup": to["reply_markup"]}

    async def rewrite(text: str, parse_mode: str | None) -> Message | bool:
        return await client.edit_message_text(text, parse_mode=parse_mode, link_preview_options=_no_preview(), **at)

    try:
        await _send_html(message.content, rewrite)
    except PermanentSend as refused:
        if not refused_with(refused, UNCHANGED):
            raise


async def upload(client: TelegramClient, message: OutgoingMessage, to: Arguments) -> Receipt:
    """Send a file with its caption; a caption that is too long follows as a message.

    Raises a ``SendFailure``, which is ``PermanentSend`` for a file that is too large or missing.
    """
    content = await _read_checked_content(message)
    caption = message.content if message.path is not None else ""
    fits = html_length(caption) <= MAX_CAPTION
    patient = {**to, "read_timeout": FILE_SECONDS}  # Telegram answers an upload only after it has stored the file

    async def send(text: str, parse_mode: str | None) -> Message:
        arguments = {**patient, "caption": text or None, "parse_mode": parse_mode}
        return await _send_file(client, message, content, arguments)

    sent = await _send_html(caption if fits else "", send)
    if not fits:
        await _send_long_caption(client, caption, to)
    return _receipt_of(sent)


async def _send_file(client: TelegramClient, message: OutgoingMessage, content: bytes, arguments: Arguments) -> Message:
    """Send the file as a photo if Telegram accepts it as a photo, else as a document."""
    if message.content_type in PICTURES and len(content) <= MAX_PICTURE_BYTES:
        try:
            with telegram_errors():
                return await client.send_photo(photo=InputFile(content, filename=message.filename), **arguments)
        except PermanentSend as refused:
            if not refused_with(refused, *NO_PICTURE):
                raise
    with telegram_errors():
        document = InputFile(content, filename=message.filename)
        return await client.send_document(document=document, disable_content_type_detection=True, **arguments)


async def _send_long_caption(client: TelegramClient, text: str, to: Arguments) -> None:
    """Send the text that was too long for a caption; a failure is only logged, so that the file is not sent again."""
    after = {**to, "reply_parameters": None, "reply_markup": None}

    async def send(part: str, parse_mode: str | None) -> Message:
        return await client.send_message(text=part, parse_mode=parse_mode, link_preview_options=_no_preview(), **after)

    try:
        for part in split(text, MAX_LENGTH, html_length):
            await _send_html(part, send)
    except SendFailure as failure:
        log.warning("telegram.words_below_a_file_lost", reason=str(failure))


async def _send_html(content: str, send: Callable[[str, str | None], Awaitable[Sent]]) -> Sent:
    """Send a text as HTML, or as plain text if Telegram refused the HTML."""
    html = render(content)
    if html.strip():
        try:
            with telegram_errors():
                return await send(html, ParseMode.HTML)
        except PermanentSend as refused:
            if not refused_with(refused, UNREADABLE, *EMPTY_TEXT):
                raise
    with telegram_errors():
        return await send(without_mentions(content), None)


async def _read_checked_content(message: OutgoingMessage) -> bytes:
    try:
        content = await read_content(message)
    except OSError as error:
        raise PermanentSend(f"the file cannot be read ({type(error).__name__})", FailureScope.MESSAGE) from None
    if len(content) > MAX_FILE_BYTES:
        size = f"{len(content):,} bytes; the limit of Telegram is {MAX_FILE_BYTES:,}"
        raise PermanentSend(f"the file has {size}", FailureScope.MESSAGE)
    return content


def _no_preview() -> LinkPreviewOptions:
    """Return options without link previews, which would request an address that a prompt injection may have added."""
    return LinkPreviewOptions(is_disabled=True)


def _button_keyboard(message: OutgoingMessage) -> InlineKeyboardMarkup | None:
    """Return the buttons of a message in one column, None if it has none; key and number identify a button."""
    rows = [
        [InlineKeyboardButton(button.label, callback_data=f"{message.key}:{number}")]
        for number, button in enumerate(message.buttons)
    ]
    return InlineKeyboardMarkup(rows) if rows else None


def _receipt_of(sent: Message) -> Receipt:
    with telegram_errors():  # Telegram's answer may be unreadable
        return Receipt(platform_message_id=str(int(sent.message_id)))
