"""The state of a local WhatsApp: a business with two numbers, what it sent to people, files, and what people wrote."""

import hashlib
import itertools
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

NUMBER_ID, SECOND_NUMBER_ID = "106540352242922", "106540352242923"
ACCOUNT_ID = "102290129340398"
ACCESS_TOKEN = "EAAJB0000000access0token0of0the0local0WhatsApp"
APP_SECRET = "app-secret-of-the-local-whatsapp"
VERIFY_TOKEN = "verify-token-of-the-local-whatsapp"
TEMPLATE = "news_for_you"
"""A template in English that is approved, with one variable."""
WINDOW_SECONDS = 24 * 3600


@dataclass
class MediaFile:
    """A file; ``url`` is where the API says that it is, ``size`` and ``sha256`` what it says of it."""

    content: bytes = field(repr=False)
    mime_type: str
    url: str = ""
    size: int = 0
    sha256: str = ""

    def described(self, media_id: str) -> Json:
        """Return it as the API does."""
        return {
            "messaging_product": "whatsapp",
            "url": self.url,
            "mime_type": self.mime_type,
            "sha256": self.sha256 or hashlib.sha256(self.content).hexdigest(),
            "file_size": self.size or len(self.content),
            "id": media_id,
        }


class Business:
    """What Meta knows of us."""

    def __init__(self) -> None:
        self.numbers = {
            NUMBER_ID: {"verified_name": "Maestro", "display_phone_number": "+1 555-010-0001", "id": NUMBER_ID},
            SECOND_NUMBER_ID: {"verified_name": "Second", "display_phone_number": "+1 555-010-0002"},
        }
        self.tokens = {ACCESS_TOKEN}
        self.sent: defaultdict[str, list[Json]] = defaultdict(list)
        """What we sent, by person: the request's body and the ``id`` it got."""
        self.files: dict[str, MediaFile] = {}
        self.names: dict[str, str] = {}
        self.read: list[Json] = []
        """The receipts that we sent, with or without a typing indicator."""
        self.reactions: list[Json] = []
        self.heard: dict[str, float] = {}
        """When each person wrote last."""
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """Return a new number."""
        return next(self._numbers)

    def wamid(self) -> str:
        """Return the id of a new message."""
        return f"wamid.HBgLMTU1NTAxMDAwMDEVAgARGBI{self.number():08d}"

    def open(self, person: str, seconds_ago: float = 0) -> None:
        """Let a person have written so long ago."""
        self.heard[person] = time.time() - seconds_ago

    def is_open(self, person: str) -> bool:
        """Tell whether a person may be written to in words of our own."""
        return time.time() - self.heard.get(person, 0.0) < WINDOW_SECONDS

    def wrote(self, person: str, kind: str, part: Any, **extra: Any) -> Json:
        """Let a person write, and return the message as a webhook has it."""
        self.open(person)
        stamp = str(int(time.time()))
        return {"from": person, "id": self.wamid(), "timestamp": stamp, "type": kind, kind: part, **extra}

    def file(self, content: bytes, mime_type: str) -> str:
        """Keep a file and return its id."""
        media_id = f"{self.number():015d}"
        self.files[media_id] = MediaFile(content, mime_type)
        return media_id
