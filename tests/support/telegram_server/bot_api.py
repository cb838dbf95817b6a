"""The methods of the Bot API: arguments in, the result out."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.telegram_server.bots import Bot
from tests.support.telegram_server.chats import Chats, Json, utf16
from tests.support.telegram_server.markup import MarkupError, plain

Arguments = Mapping[str, Any]
LONGEST_TEXT, LONGEST_CAPTION, MOST_CALLBACK = 4096, 1024, 64
LARGEST_FILE = 20 * 1000**2
REACTIONS = ("👍", "👀", "🔥")


class ApiError(Exception):
    """What Telegram answers with 400."""


class BotApi:
    """The methods that a bot may call."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self.actions: list[Json] = []
        self.reactions: list[Json] = []
        self.answered: list[Json] = []
        """The presses of buttons that were confirmed."""

    def call(self, bot: Bot, method: str, asked: Arguments) -> Any:
        """Do it; raises ``ApiError``."""
        found = getattr(self, f"_{method}", None)
        if found is None:
            raise ApiError("method not found")
        return found(bot, asked)

    def _getMe(self, bot: Bot, _: Arguments) -> Json:  # noqa: N802 - Telegram's name
        return bot.me

    def _setMyCommands(self, bot: Bot, asked: Arguments) -> bool:  # noqa: N802 - Telegram's name
        bot.commands = json.loads(asked["commands"])
        return True

    def _setWebhook(self, bot: Bot, asked: Arguments) -> bool:  # noqa: N802 - Telegram's name
        bot.url, bot.secret = str(asked["url"]), str(asked.get("secret_token") or "")
        bot.allowed = json.loads(asked.get("allowed_updates") or "[]")
        return True

    def _deleteWebhook(self, bot: Bot, asked: Arguments) -> bool:  # noqa: N802 - Telegram's name
        assert asked.get("drop_pending_updates") in (None, "false"), "what waits must not be thrown away"
        bot.url = ""
        return True

    def _getWebhookInfo(self, bot: Bot, _: Arguments) -> Json:  # noqa: N802 - Telegram's name
        info: Json = {"url": bot.url, "has_custom_certificate": False, "pending_update_count": len(bot.waiting)}
        failed = {"last_error_date": bot.last_error_date, "last_error_message": bot.last_error}
        return {**info, "allowed_updates": bot.allowed, **(failed if bot.last_error else {})}

    def _sendMessage(self, bot: Bot, asked: Arguments) -> Json:  # noqa: N802 - Telegram's name
        text = _text(asked, "text", LONGEST_TEXT)
        if not text.strip():
            raise ApiError("message text is empty")
        return self._post(bot, asked, {"text": text})

    def _editMessageText(self, _: Bot, asked: Arguments) -> Json:  # noqa: N802 - Telegram's name
        message = self._chats.find(int(asked["chat_id"]), int(asked["message_id"]))
        if message is None:
            raise ApiError("message to edit not found")
        text = _text(asked, "text", LONGEST_TEXT)
        if text == message["text"]:
            raise ApiError("message is not modified: specified new message content and reply markup are the same")
        message["text"] = text
        return message

    def _sendPhoto(self, bot: Bot, asked: Arguments) -> Json:  # noqa: N802 - Telegram's name
        name, content = asked["photo"]
        if not content.startswith((b"\x89PNG", b"\xff\xd8")):
            raise ApiError("PHOTO_INVALID_DIMENSIONS")
        photo = self._chats.shown(self._chats.keep(name, content), width=1, height=1)
        return self._post(bot, asked, {"photo": [photo], "caption": _text(asked, "caption", LONGEST_CAPTION)})

    def _sendDocument(self, bot: Bot, asked: Arguments) -> Json:  # noqa: N802 - Telegram's name
        name, content = asked["document"]
        document = self._chats.shown(self._chats.keep(name, content), file_name=name)
        return self._post(bot, asked, {"document": document, "caption": _text(asked, "caption", LONGEST_CAPTION)})

    def _sendChatAction(self, _: Bot, asked: Arguments) -> bool:  # noqa: N802 - Telegram's name
        self.actions.append(dict(asked))
        return True

    def _setMessageReaction(self, _: Bot, asked: Arguments) -> bool:  # noqa: N802 - Telegram's name
        if any(one["emoji"] not in REACTIONS for one in json.loads(asked["reaction"])):
            raise ApiError("REACTION_INVALID")
        self.reactions.append(dict(asked))
        return True

    def _answerCallbackQuery(self, _: Bot, asked: Arguments) -> bool:  # noqa: N802 - Telegram's name
        self.answered.append(dict(asked))
        return True

    def _getFile(self, _: Bot, asked: Arguments) -> Json:  # noqa: N802 - Telegram's name
        file = self._chats.files.get(asked["file_id"])
        if file is None:
            raise ApiError("wrong file_id or the file is temporarily unavailable")
        if file.size > LARGEST_FILE:
            raise ApiError("file is too big")
        return self._chats.shown(file, file_path=file.path)

    def _post(self, bot: Bot, asked: Arguments, content: Json) -> Json:
        chat = int(asked["chat_id"])
        preview = json.loads(asked.get("link_preview_options") or "{}")
        kept: Json = {"from": bot.user, **content, "previews": not preview.get("is_disabled")}
        if asked.get("message_thread_id"):
            kept |= {"message_thread_id": int(asked["message_thread_id"]), "is_topic_message": True}
        if asked.get("reply_parameters"):
            kept["replied"] = json.loads(asked["reply_parameters"])["message_id"]
        if asked.get("reply_markup"):
            kept["reply_markup"] = _keyboard(asked["reply_markup"])
        return self._chats.add(chat, kept)


def _keyboard(markup: str) -> Json:
    keyboard: Json = json.loads(markup)
    for row in keyboard["inline_keyboard"]:
        if any(len(button["callback_data"].encode()) > MOST_CALLBACK for button in row):
            raise ApiError("BUTTON_DATA_INVALID")
    return keyboard


def _text(asked: Arguments, name: str, most: int) -> str:
    """Return a text as it is seen, without its markup."""
    text = str(asked.get(name) or "")
    if asked.get("parse_mode"):
        try:
            text = plain(text)
        except MarkupError as error:
            raise ApiError(f"can't parse entities: {error}") from None
    if utf16(text) > most:
        raise ApiError("message is too long" if name == "text" else "message caption is too long")
    return text
