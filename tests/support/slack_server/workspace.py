"""The state of a local Slack: channels with their messages, people, and files."""

import itertools
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TEAM = "T0MAESTRO"
BOT_USER, BOT_ID = "U0BOT", "B0BOT"
BOT_TOKEN = "xoxb-000000000000-bot-token-of-the-local-slack"
SECOND_BOT_TOKEN = "xoxb-111111111111-another-token-of-the-local-slack"
"""A token of another app, which is the same bot."""
APP_TOKEN = "xapp-1-A0MAESTRO-app-token-of-the-local-slack"
SIGNING_SECRET = "signing-secret-of-the-local-slack"


@dataclass
class SlackFile:
    """An uploaded file; ``url`` is where ``files.info`` says that it is."""

    id: str
    name: str
    content: bytes = field(repr=False)
    mimetype: str
    url: str
    size: int = 0
    """What Slack says the size is; that of the content where it is 0."""

    def described(self) -> Json:
        """Return it as the API does."""
        size = self.size or len(self.content)
        return {
            "id": self.id,
            "name": self.name,
            "title": self.name,
            "mimetype": self.mimetype,
            "size": size,
            "mode": "hosted",
            "is_external": False,
            "url_private": self.url,
            "url_private_download": f"{self.url}?download=1",
        }


class Workspace:
    """One team with one app in it; channels exist once somebody writes there."""

    def __init__(self) -> None:
        self.messages: defaultdict[str, list[Json]] = defaultdict(list)
        self.users: dict[str, Json] = {}
        self.files: dict[str, SlackFile] = {}
        self.bot_tokens = {BOT_TOKEN, SECOND_BOT_TOKEN}
        self.app_token = APP_TOKEN
        self.scopes = {"chat:write", "channels:history", "im:history", "files:read", "users:read"}
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """Return a new number."""
        return next(self._numbers)

    def ts(self) -> str:
        """Return the time of a new message; no two are alike, and later ones are greater."""
        return f"{int(time.time())}.{self.number():06d}"

    def person(self, user: str, name: str) -> None:
        """Let there be a person of this name."""
        self.users[user] = {"id": user, "name": name, "profile": {"display_name": name, "real_name": name}}

    def add(self, channel: str, message: Mapping[str, Any]) -> Json:
        """Store a message and return it with its time."""
        stored = {"type": "message", "team": TEAM, **message, "ts": message.get("ts") or self.ts()}
        self.messages[channel].append(stored)
        return stored

    def by_bot(self, channel: str, text: str, **extra: Any) -> Json:
        """Store what the app posts."""
        return self.add(channel, {"user": BOT_USER, "bot_id": BOT_ID, "text": text, **extra})

    def find(self, channel: str, ts: str) -> Json | None:
        """Return a message by its time."""
        return next((one for one in self.messages[channel] if one["ts"] == ts), None)

    def history(self, channel: str) -> list[Json]:
        """Return what stands in the channel itself, newest first; parents tell of their threads."""
        return [self._with_thread(channel, one) for one in reversed(self.messages[channel]) if not _only_in_thread(one)]

    def replies(self, channel: str, parent: str) -> list[Json]:
        """Return a thread, the message that began it first."""
        return [one for one in self.messages[channel] if parent in (one["ts"], one.get("thread_ts"))]

    def _with_thread(self, channel: str, message: Json) -> Json:
        thread = self.replies(channel, message["ts"])[1:]
        if not thread:
            return message
        return {**message, "thread_ts": message["ts"], "reply_count": len(thread), "latest_reply": thread[-1]["ts"]}


def _only_in_thread(message: Json) -> bool:
    return message.get("thread_ts", message["ts"]) != message["ts"] and message.get("subtype") != "thread_broadcast"
