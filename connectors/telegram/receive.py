"""The conversion of Telegram's updates into incoming messages: text, files by reference, albums and buttons."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from telegram import Chat, Message, MessageEntity, Update

from connectors.account import ButtonPress
from connectors.telegram.platform import PLATFORM
from maestro.domain.messages import PAIR, Address, Addressing, Attachment, IncomingMessage, control_word, pairing_code
from maestro.domain.people.people import CODE_LENGTH, CODE_LETTERS, normalize_code

KINDS = ("message", "edited_message", "channel_post", "edited_channel_post", "callback_query")
"""The kinds of updates to receive; reactions, member changes and payments are not requested."""
PRESS = "press:"
"""The prefix of a button press's message id; Telegram shows no reply to a button press."""

_COMMAND = re.compile(r"(/[A-Za-z0-9_]{1,64})@([A-Za-z0-9_]{3,64})(?=\s|$)")
_NAMES: list[str | None] = [MessageEntity.MENTION, MessageEntity.TEXT_MENTION, MessageEntity.BOT_COMMAND]


def message_text(message: Message) -> str:
    """Return the text or caption of a message, or else a description in brackets, for example of a location."""
    if message.text:
        return _spell_out_links(message.text, message.entities)
    return (
        _spell_out_links(message.caption, message.caption_entities) if message.caption else summarize_message(message)
    )


def _spell_out_links(text: str, entities: Sequence[MessageEntity]) -> str:
    """Return a text with the addresses of its links in parentheses; offsets count UTF-16 code units."""
    units = text.encode("utf-16-le")
    links = [entity for entity in entities if entity.type == MessageEntity.TEXT_LINK and entity.url]
    for link in sorted(links, key=lambda link: link.offset, reverse=True):
        end = 2 * (link.offset + link.length)
        units = units[:end] + f" ({link.url})".encode("utf-16-le") + units[end:]
    return units.decode("utf-16-le", "replace")


def message_files(message: Message) -> Iterator[Attachment]:
    """Yield the files of a message by id: a link would contain the bot's token, and expire."""
    number, sticker = message.message_id, message.sticker
    is_picture = sticker is not None and not sticker.is_animated and not sticker.is_video
    for file, name, content_type in (
        (message.photo[-1] if message.photo else None, f"photo-{number}.jpg", "image/jpeg"),  # The largest size.
        (message.voice, f"voice-{number}.ogg", "audio/ogg"),
        (message.audio, f"audio-{number}.mp3", "audio/mpeg"),
        (message.video, f"video-{number}.mp4", "video/mp4"),
        (message.video_note, f"video-note-{number}.mp4", "video/mp4"),
        (message.document, f"file-{number}", ""),  # Telegram sends an animation as a document too.
        (sticker if is_picture else None, f"sticker-{number}.webp", "image/webp"),
    ):
        if file is not None:
            yield Attachment(
                id=file.file_id,
                filename=getattr(file, "file_name", None) or name,
                content_type=getattr(file, "mime_type", None) or content_type,
                size=max(0, file.file_size or 0),
            )


def summarize_message(message: Message) -> str:
    """Return a description in brackets of a message without text, "" if there is nothing to describe."""
    if message.venue:
        at = message.venue.location
        return f"[place: {message.venue.title}, {message.venue.address} ({at.latitude:g}, {at.longitude:g})]"
    if message.location:
        return f"[location: {message.location.latitude:g}, {message.location.longitude:g}]"
    if message.contact:
        name = " ".join(filter(None, (message.contact.first_name, message.contact.last_name)))
        return f"[contact: {name}, {message.contact.phone_number}]"
    if message.poll:
        return f"[poll: {message.poll.question} {' / '.join(option.text for option in message.poll.options)}]"
    if message.dice:
        return f"[{message.dice.emoji} {message.dice.value}]"
    if message.sticker:
        return f"[sticker {message.sticker.emoji or ''}".rstrip() + "]"
    return ""


@dataclass(frozen=True)
class TelegramBot:
    """The bot's identity on Telegram; with ``every_line`` the bot also answers messages that do not mention it."""

    account: str
    id: int
    name: str
    every_line: bool = False


def parse_message_update(update: Update, bot: TelegramBot) -> IncomingMessage | None:
    """Return the message of an update; None for an update without a message, and for a message to another bot."""
    message = update.effective_message
    if message is None or update.callback_query is not None or not isinstance(message, Message):
        return None
    incoming = _read_message(message, bot)
    edited = update.edited_message or update.edited_channel_post
    if edited is None or incoming is None:
        return incoming
    # Telegram reports updates of live locations and polls as edits too; only messages with text count as edited.
    if message.edit_date is None or not (message.text or message.caption):
        return None
    return incoming.model_copy(
        update={
            "id": f"{message.message_id}:{int(message.edit_date.timestamp())}.{update.update_id}",
            "edit_of": str(message.message_id),
            "sent_at": message.edit_date,
        }
    )


def join_album(parts: Sequence[IncomingMessage]) -> IncomingMessage:
    """Return the parts of an album as one message: the first part with the texts and files of all parts."""
    first, *rest = parts
    if not rest:
        return first
    files = tuple(file for part in parts for file in part.attachments)
    content = "\n".join(part.content for part in parts if part.content)
    addressing = max((part.addressing for part in parts), key=list(Addressing).index)
    return first.model_copy(update={"attachments": files, "content": content, "addressing": addressing})


def parse_button_press(update: Update, bot: TelegramBot, now: datetime) -> ButtonPress | None:
    """Return the button press of an update, None for any other update; Telegram reports no time, so ``now`` is used."""
    query = update.callback_query
    if query is None or query.message is None:
        return None
    key, _, number = (query.data or "").partition(":")
    where = query.message
    thread = where.message_thread_id if isinstance(where, Message) and where.is_topic_message else None
    is_number = number.isascii() and number.isdecimal() and len(number) < 4
    message = IncomingMessage(
        id=f"{PRESS}{query.id}",
        address=chat_address(bot, where.chat, thread),
        user_id=str(query.from_user.id),
        user_name=query.from_user.full_name,
        sent_at=now,
        is_direct=where.chat.type == Chat.PRIVATE,
        from_bot=query.from_user.is_bot,
        reply_to=str(where.message_id),
        addressing=Addressing.REPLY,
    )
    return ButtonPress(key, int(number) if is_number else -1, message)


def parse_migration(update: Update) -> tuple[str, str] | None:
    """Return the old and the new id of a group that became a supergroup, None for any other update."""
    message = update.message
    if message is not None and message.migrate_to_chat_id:
        return str(message.chat.id), str(message.migrate_to_chat_id)
    if message is not None and message.migrate_from_chat_id:
        return str(message.migrate_from_chat_id), str(message.chat.id)
    return None


def _read_message(message: Message, bot: TelegramBot) -> IncomingMessage | None:
    """Return an incoming message; None for the bot's own message, a command to another bot, and an empty message."""
    answered = _answered_message(message)
    is_direct = message.chat.type == Chat.PRIVATE
    text, files = _read_content(message_text(message), bot, is_direct=is_direct), tuple(message_files(message))
    author = message.from_user
    if text is None or (author is not None and author.id == bot.id) or not (text.strip() or files):
        return None
    user_id, user_name, from_bot = _read_author(message)
    return IncomingMessage(
        id=str(message.message_id),
        address=chat_address(bot, message.chat, message.message_thread_id if message.is_topic_message else None),
        user_id=user_id,
        user_name=user_name,
        content=text,
        sent_at=message.date,
        attachments=files,
        is_direct=is_direct,
        from_bot=from_bot,
        reply_to=str(answered.message_id) if answered is not None else "",
        addressing=_find_addressing(message, bot),
    )


def _read_author(message: Message) -> tuple[str, str, bool]:
    """Return the id and the name of a message's author, and whether the author is a bot.

    An anonymous admin counts as the group, and an author writing as a channel counts as the channel: Telegram reports
    the same bot for all of them. Messages that Telegram forwards from the group's channel count as messages of a bot.
    """
    chat, author = message.sender_chat, message.from_user
    if chat is not None:
        return str(chat.id), message.author_signature or chat.effective_name or "", bool(message.is_automatic_forward)
    return (
        (str(author.id), author.full_name, author.is_bot) if author is not None else (str(message.chat.id), "", False)
    )


def _read_content(text: str, bot: TelegramBot, *, is_direct: bool) -> str | None:
    """Return the text of a message; None for a command to another bot, which a direct chat cannot contain.

    ``/stop@bot`` and ``@bot /stop`` count as ``/stop``, because users address a bot in a group in these ways. A link to
    the bot may bring a pairing code as ``/start <code>``.
    """
    command = _COMMAND.match(text)
    if command is not None:
        if command[2].lower() != bot.name.lower():
            return text if is_direct else None
        text = command[1] + text[command.end() :]
    mention = f"@{bot.name} "
    rest = text[len(mention) :].strip() if text.lower().startswith(mention.lower()) else text
    if control_word(rest) is not None or pairing_code(rest) is not None:
        return rest
    word, _, argument = text.partition(" ")
    code = normalize_code(argument)
    is_code = len(code) == CODE_LENGTH and set(code) <= set(CODE_LETTERS)
    return f"{PAIR} {argument.strip()}" if word.lower() == "/start" and is_code else text


def _find_addressing(message: Message, bot: TelegramBot) -> Addressing:
    """Return how a message addresses the bot: by a mention or command with its name, by a reply to it, or not."""
    entities = message.parse_entities(_NAMES) if message.text else message.parse_caption_entities(_NAMES)
    if any(_is_bot_name(entity, text, bot) for entity, text in entities.items()):
        return Addressing.US
    answered = _answered_message(message)
    if answered is not None and answered.from_user is not None and answered.from_user.id == bot.id:
        return Addressing.REPLY
    return Addressing.ANYBODY if bot.every_line else Addressing.NOBODY


def _is_bot_name(entity: MessageEntity, text: str, bot: TelegramBot) -> bool:
    if entity.type == MessageEntity.TEXT_MENTION:
        return entity.user is not None and entity.user.id == bot.id
    name = f"@{bot.name}".lower()
    return text.lower() == name if entity.type == MessageEntity.MENTION else text.lower().endswith(name)


def _answered_message(message: Message) -> Message | None:
    """Return the message that this message replies to, None if there is none.

    In a topic every message refers to the topic's first message, which does not count as a reply.
    """
    answered = message.reply_to_message
    return None if answered is None or answered.forum_topic_created is not None else answered


def chat_address(bot: TelegramBot, chat: Chat, topic: int | None) -> Address:
    return Address(platform=PLATFORM, account=bot.account, channel=str(chat.id), thread=str(topic or ""))
