"""The state of a local Telegram: chats with their messages, people, and files."""

import itertools
import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

ADA, ZOE = 1001, 1002
PEOPLE = {ADA: "Ada", ZOE: "Zoe"}

_MENTION = re.compile(r"(?<!\w)@\w+")
_COMMAND = re.compile(r"(?<!\S)/\w+(?:@\w+)?")


@dataclass
class TelegramFile:
    """A file; ``size`` is what Telegram says that it is, and ``redirect`` where its file server sends who asks."""

    id: str
    path: str
    content: bytes = field(repr=False)
    size: int = 0
    redirect: str = ""


class Chats:
    """Everything that was said; a chat exists once somebody writes there."""

    def __init__(self) -> None:
        self.messages: defaultdict[int, list[Json]] = defaultdict(list)
        self.files: dict[str, TelegramFile] = {}
        self.forums: set[int] = set()
        self._numbers = itertools.count(1)
        self._ids: defaultdict[int, itertools.count[int]] = defaultdict(lambda: itertools.count(1))

    def number(self) -> int:
        """Return a new number."""
        return next(self._numbers)

    def chat(self, chat: int) -> Json:
        """Return a chat as a message shows it: people have positive ids."""
        if chat > 0:
            return {"id": chat, "type": "private", "first_name": PEOPLE.get(chat, "Somebody")}
        shown: Json = {"id": chat, "type": "supergroup", "title": f"Group {-chat}"}
        return {**shown, "is_forum": True} if chat in self.forums else shown

    def person(self, user: int) -> Json:
        """Return somebody as a message shows them."""
        return {"id": user, "is_bot": False, "first_name": PEOPLE.get(user, "Somebody")}

    def add(self, chat: int, message: Json) -> Json:
        """Store a message under the next number of its chat."""
        stored = {"message_id": next(self._ids[chat]), "date": int(time.time()), "chat": self.chat(chat), **message}
        self.messages[chat].append(stored)
        return stored

    def write(self, chat: int, user: int, text: str, **extra: Any) -> Json:
        """Store what somebody writes, with the marks that Telegram puts to names and commands."""
        said: Json = {"text": text, "entities": entities(text)} if text else {}
        return self.add(chat, {"from": self.person(user), **said, **extra})

    def find(self, chat: int, number: int) -> Json | None:
        """Return a message by its number."""
        return next((one for one in self.messages[chat] if one["message_id"] == number), None)

    def keep(self, name: str, content: bytes, *, size: int = 0, redirect: str = "") -> TelegramFile:
        """Keep a file under an id as long as Telegram's may be."""
        number = self.number()
        file_id = f"AgACAgIAAxkBAAI{number:08d}{'Q' * 100}"
        path = f"documents/file_{number}_{name}"
        self.files[file_id] = TelegramFile(file_id, path, content, size or len(content), redirect)
        return self.files[file_id]

    def shown(self, file: TelegramFile, **more: Any) -> Json:
        """Return a file as a message shows it."""
        return {"file_id": file.id, "file_unique_id": file.id[-8:], "file_size": file.size, **more}


def entities(text: str) -> list[Json]:
    """Return where names and commands are, counted in UTF-16 units."""
    found = [("mention", one) for one in _MENTION.finditer(text)]
    found += [("bot_command", one) for one in _COMMAND.finditer(text)]
    return [
        {"type": kind, "offset": utf16(text[: one.start()]), "length": utf16(one.group())}
        for kind, one in sorted(found, key=lambda pair: pair[1].start())
    ]


def utf16(text: str) -> int:
    """Return how long Telegram finds a text."""
    return len(text.encode("utf-16-le")) // 2
