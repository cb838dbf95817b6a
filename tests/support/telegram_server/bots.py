"""The bots of a local Telegram: what each was told, what waits for it, and where its webhook is."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TOKEN = "4200000001:AA-token-of-the-first-bot-of-local-telegram"
OTHER_TOKEN = "4200000002:AA-token-of-another-bot-of-local-telegram"
HOLDING_TOKEN = "4200000003:AA-token-of-a-third-bot-of-local-telegram"
GROWING_TOKEN = "4200000004:AA-token-of-a-fourth-bot-of-local-telegram"
SECRET = "secret-of-the-webhook_of-the-local-telegram"
FIRST_UPDATE = 700_000_001
PAGE = 100


@dataclass
class Bot:
    """One bot; ``waiting`` are the updates that nobody confirmed, oldest first."""

    token: str
    username: str
    hears_all: bool = True
    waiting: list[Json] = field(default_factory=list)
    told: int = 0
    """How many updates there were in all."""
    url: str = ""
    secret: str = ""
    allowed: list[str] = field(default_factory=list)
    last_error: str = ""
    last_error_date: int = 0
    commands: list[Json] = field(default_factory=list)
    polls: list[Json] = field(default_factory=list)
    """The arguments of every ``getUpdates``."""
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    polling: int = 0
    """The number of the poll that counts: an older one is told that there is another."""

    @property
    def id(self) -> int:
        """Its number, with which its token begins."""
        return int(self.token.partition(":")[0])

    @property
    def user(self) -> Json:
        """The bot as a user."""
        return {"id": self.id, "is_bot": True, "first_name": "Maestro", "username": self.username}

    @property
    def me(self) -> Json:
        """What ``getMe`` says."""
        able = {"can_join_groups": True, "can_read_all_group_messages": self.hears_all}
        return {**self.user, **able, "supports_inline_queries": False}

    async def tell(self, kind: str, about: Json) -> Json:
        """Let there be something new."""
        update = {"update_id": FIRST_UPDATE + self.told, kind: about}
        await self.repeat(update)
        self.told += 1
        return update

    async def repeat(self, update: Json) -> None:
        """Let something wait, new or not."""
        async with self.news:
            self.waiting.append(update)
            self.news.notify_all()

    async def updates(self, asked: Json) -> list[Json] | None:
        """Return what waits, once something does or the time is over; None when another poll took over."""
        self.polls.append(asked)
        offset, wait = int(asked.get("offset") or 0), float(asked.get("timeout") or 0)
        self.waiting = [one for one in self.waiting if one["update_id"] >= offset]
        async with self.news:
            self.polling += 1
            mine = self.polling
            self.news.notify_all()
            try:
                async with asyncio.timeout(wait):
                    await self.news.wait_for(lambda: bool(self.waiting) or self.polling != mine)
            except TimeoutError:
                pass
            return self.waiting[:PAGE] if self.polling == mine else None
