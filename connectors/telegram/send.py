"""Sends to Telegram: Markdown as HTML in which no user is notified, or as plain text if Telegram refuses the HTML.

The text of a model is not trusted. Everything except the rendered markup is escaped, an invisible character breaks up
names of users and bots, and only web and mail links become links. No link has a preview: Telegram would request an
address that a prompt injection may have chosen. Each inline tag is closed on its line and each block tag before the
next block, so Telegram can parse any output."""

import html
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import structlog
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, InputFile, Message, ReplyParameters
from telegram.constants import ParseMode

from connectors.account import read_content
from connectors.base import LengthUnit
from connectors.failures import FailureScope, PermanentSend, SendFailure
from connectors.markdown import (
    FENCE,
    LEAF_PATTERNS,
    MARK_PATTERNS,
    QUOTE,
    SPAN,
    MarkdownDialect,
    find_code_end,
    find_table_end,
    render_line,
    split_markdown,
    text_length,
)
from connectors.telegram.api import (
    EMPTY_TEXT,
    FILE_SECONDS,
    NO_PICTURE,
    UNCHANGED,
    UNREADABLE,
    TelegramClient,
    has_refusal_words,
    telegram_errors,
)
from maestro.domain.messages import OutgoingMessage, Receipt

LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
_WEB = r"https?://(?:[\w-]+\.)+[^\W\d_]{2,}(?![\w-])(?:[:/?#][^\s<>\"«»\u2000-\u206f]*)?"
ADDRESS = re.compile(_WEB)
"""An address that Telegram turns into a link; an ``@`` in an address is no user name."""
WORD_JOINER = "\u2060"
_NAME = re.compile(r"(?<!\w)@(?=\w)")
_BARE = rf"(?<!\w)(?P<bare>{_WEB})"
_ITALIC_UNDERSCORES = rf"(?<!\w)_(?=[^\s_])(?P<italic2>[^_\n]{SPAN}?)(?<=[^\s_])_(?!\w)"

MAX_LENGTH = 4_096
MAX_CAPTION = 1_024
MAX_FILE_BYTES = 50 * 1000**2
MAX_PICTURE_BYTES = 10 * 1000**2
PICTURES = frozenset({"image/jpeg", "image/png"})
Sent = TypeVar("Sent")
Arguments = dict[str, Any]
"""Keyword arguments of the library's send methods."""

log = structlog.get_logger(__name__)


def render_html(text: str) -> str:
    """Return any Markdown text as Telegram's HTML."""
    return "\n".join(_render_blocks(text.split("\n")))


def disable_mentions(text: str) -> str:
    """Return plain text in which no ``@name`` notifies a user; mail addresses stay unchanged."""
    return _NAME.sub(f"@{WORD_JOINER}", text)


def _render_blocks(lines: Sequence[str]) -> Iterator[str]:
    """Yield each code block, quote and table as a whole, and every other line by itself."""
    at = 0
    while at < len(lines):
        if end := find_code_end(lines, at):
            yield _render_code_block(lines[at:end])
        elif quoted := list(takewhile(QUOTE.match, lines[at:])):
            end = at + len(quoted)
            yield _wrap_in_tag("blockquote", (render_line(QUOTE.sub("", line, 1), DIALECT) for line in quoted))
        elif end := find_table_end(lines, at):
            yield _wrap_in_tag("pre", (_escape_html(line.strip()) for line in lines[at:end]))
        else:
            end = at + 1
            yield render_line(lines[at], DIALECT)
        at = end


def _wrap_in_tag(tag: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<{tag}>{body}</{tag}>"


def _render_code_block(lines: Sequence[str]) -> str:
    opening = FENCE.match(lines[0])
    assert opening is not None
    last = lines[-1].strip(" \t")
    closed = len(lines) > 1 and len(last) >= len(opening[2]) and set(last) == {opening[2][0]}
    body = _escape_html("\n".join(lines[1:-1] if closed else lines[1:]))
    language = LANGUAGE.match(opening[3].strip())
    if language is None:
        return f"<pre>{body}</pre>"
    return f'<pre><code class="language-{language[0]}">{body}</code></pre>'


def _render_text(text: str) -> str:
    return _escape_html(disable_mentions(text))


def _render_link(label: str, url: str) -> str:
    if label:
        return f'<a href="{html.escape(url)}">{_render_text(label)}</a>'
    return _escape_html(url if ADDRESS.fullmatch(url) else disable_mentions(url))


def _escape_html(text: str) -> str:
    return html.escape(text, quote=False)


DIALECT = MarkdownDialect(
    plain=_render_text,
    literal=lambda mark: _escape_html(mark) + (WORD_JOINER if mark == "@" else ""),
    code=lambda text: f"<code>{_escape_html(text)}</code>",
    block=_escape_html,
    link=_render_link,
    around={
        "both": ("<b><i>", "</i></b>"),
        "bold": ("<b>", "</b>"),
        "struck": ("<s>", "</s>"),
        "italic": ("<i>", "</i>"),
    },
    inline=re.compile("|".join((*LEAF_PATTERNS, _BARE, *MARK_PATTERNS, _ITALIC_UNDERSCORES))),
)


def html_length(text: str) -> int:
    """Return an upper bound of the length that Telegram counts for a text: the length of its HTML, tags included."""
    return text_length(render_html(text), LengthUnit.UTF16)


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


async def post_message(client: TelegramClient, message: OutgoingMessage, destination: Arguments) -> Receipt:
    """Post a message without mentions and link previews; raises a ``SendFailure``."""
    send = partial(client.send_message, disable_web_page_preview=True, **destination)
    return _receipt_of(await _send_html(message.content, send))


async def edit_message(client: TelegramClient, message: OutgoingMessage, destination: Arguments) -> None:
    """Edit a sent message; an edit without a change succeeds. Raises a ``SendFailure``."""
    edit = partial(
        client.edit_message_text,
        chat_id=destination["chat_id"],
        message_id=message_number(message.edits),
        reply_markup=destination["reply_markup"],
        disable_web_page_preview=True,
    )
    try:
        await _send_html(message.content, edit)
    except PermanentSend as refused:
        if not has_refusal_words(refused, UNCHANGED):
            raise


async def upload_file(client: TelegramClient, message: OutgoingMessage, destination: Arguments) -> Receipt:
    """Send a file with its caption; a caption that is too long follows as a message.

    Raises a ``SendFailure``, which is ``PermanentSend`` for a file that is too large or missing.
    """
    try:
        content = await read_content(message)
    except OSError as error:
        raise PermanentSend(f"the file cannot be read ({type(error).__name__})", FailureScope.MESSAGE) from None
    if len(content) > MAX_FILE_BYTES:
        size = f"{len(content):,} bytes; the limit of Telegram is {MAX_FILE_BYTES:,}"
        raise PermanentSend(f"the file has {size}", FailureScope.MESSAGE)
    caption = message.content if message.path is not None else ""
    fits = html_length(caption) <= MAX_CAPTION

    async def send(text: str, parse_mode: str | None) -> Message:
        return await _send_file(
            client, message, content, {**destination, "caption": text or None, "parse_mode": parse_mode}
        )

    sent = await _send_html(caption if fits else "", send)
    if not fits:
        await _send_long_caption(client, caption, destination)
    return _receipt_of(sent)


async def _send_file(client: TelegramClient, message: OutgoingMessage, content: bytes, arguments: Arguments) -> Message:
    """Send the file as a photo if Telegram accepts it as a photo, else as a document."""
    file = InputFile(content, filename=message.filename)
    # Telegram answers an upload only after it has stored the file.
    arguments = {**arguments, "read_timeout": FILE_SECONDS}
    if message.content_type in PICTURES and len(content) <= MAX_PICTURE_BYTES:
        try:
            with telegram_errors():
                return await client.send_photo(photo=file, **arguments)
        except PermanentSend as refused:
            if not has_refusal_words(refused, *NO_PICTURE):
                raise
    with telegram_errors():
        return await client.send_document(document=file, disable_content_type_detection=True, **arguments)


async def _send_long_caption(client: TelegramClient, text: str, destination: Arguments) -> None:
    """Send the text that was too long for a caption; a failure is only logged, so that the file is not sent again."""
    after = {**destination, "reply_parameters": None, "reply_markup": None}
    send = partial(client.send_message, disable_web_page_preview=True, **after)
    try:
        for part in split_markdown(text, MAX_LENGTH, html_length):
            await _send_html(part, send)
    except SendFailure as failure:
        log.warning("telegram.words_below_a_file_lost", reason=str(failure))


async def _send_html(content: str, send: Callable[..., Awaitable[Sent]]) -> Sent:
    """Send a text as HTML, or as plain text if Telegram refused the HTML."""
    rendered = render_html(content)
    if rendered.strip():
        try:
            with telegram_errors():
                return await send(text=rendered, parse_mode=ParseMode.HTML)
        except PermanentSend as refused:
            if not has_refusal_words(refused, UNREADABLE, *EMPTY_TEXT):
                raise
    with telegram_errors():
        return await send(text=disable_mentions(content), parse_mode=None)


def _button_keyboard(message: OutgoingMessage) -> InlineKeyboardMarkup | None:
    """Return the buttons of a message in one column, None without buttons; message key and number identify a button."""
    rows = [
        [InlineKeyboardButton(button.label, callback_data=f"{message.key}:{number}")]
        for number, button in enumerate(message.buttons)
    ]
    return InlineKeyboardMarkup(rows) if rows else None


def _receipt_of(sent: Message) -> Receipt:
    with telegram_errors():  # Telegram's answer may be unreadable
        return Receipt(platform_message_id=str(int(sent.message_id)))
