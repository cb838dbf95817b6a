"""The rooms and events of the test homeserver."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

NAME = "example.org"
BOT, ADA = f"@maestro:{NAME}", f"@ada:{NAME}"


@dataclass
class Room:
    """A room: its members by membership and name, and the room that it replaces."""

    id: str
    predecessor: str = ""
    members: dict[str, tuple[str, str]] = field(default_factory=dict)

    def joined(self) -> dict[str, str]:
        """Return the names of the joined members by user id."""
        return {user: name for user, (membership, name) in self.members.items() if membership == "join"}


class Story:
    """The rooms and all events; use the methods only on one event loop."""

    def __init__(self) -> None:
        self.rooms: dict[str, Room] = {}
        self.events: list[tuple[str, Json]] = []
        """All events in order, each with its room."""
        self.again: list[tuple[str, Json]] = []
        """Events that the next poll returns again, as real homeservers may."""
        self.listening = 0
        """The number of polls that wait for events."""
        self.news = asyncio.Condition()
        self._silent = False

    async def room(self, *people: str, invites: str = "") -> str:
        """Create a room with these people and the bot and return its id; with ``invites`` the bot is only invited."""
        room = Room(f"!{secrets.token_hex(6)}:{NAME}")
        self.rooms[room.id] = room
        for user in people or (ADA,):
            await self.member(room.id, user, "join")
        await self.member(room.id, BOT, "invite" if invites else "join", sender=invites)
        return room.id

    async def member(self, room: str, user: str, membership: str, *, sender: str = "", name: str = "") -> None:
        """Change the membership of a user."""
        before = self.rooms[room].members.get(user, ("", ""))[0]
        content = {"membership": membership, "displayname": name or user[1:].partition(":")[0].title()}
        self.rooms[room].members[user] = (membership, content["displayname"])
        told = {"unsigned": {"prev_content": {"membership": before}}} if before else {}
        await self.event(room, sender or user, "m.room.member", content, state_key=user, **told)

    async def say(self, room: str, text: str, sender: str = ADA, relation: Json | None = None, **extra: Any) -> str:
        """Write a message and return its id; ``extra`` are further content fields."""
        content = {"msgtype": "m.text", "body": text, **({"m.relates_to": relation} if relation else {}), **extra}
        return await self.event(room, sender, "m.room.message", content)

    async def event(self, room: str, sender: str, kind: str, content: Json, **extra: Any) -> str:
        """Add an event and return its id; ``extra`` are further fields of the event."""
        event_id = f"${secrets.token_urlsafe(24)}"
        now = int(time.time() * 1000)
        event = {"event_id": event_id, "type": kind, "sender": sender, "content": content, "origin_server_ts": now}
        async with self.news:
            self.events.append((room, event | extra))
            if not self._silent:
                self.news.notify_all()
        return event_id

    async def repeat(self, event_id: str) -> None:
        """Let the next poll return an event again."""
        async with self.news:
            self.again += [(room, event) for room, event in self.events if event["event_id"] == event_id]
            self.news.notify_all()

    @asynccontextmanager
    async def silence(self) -> AsyncIterator[None]:
        """Hold back the events in a block until the block ends."""
        self._silent = True
        yield
        self._silent = False
        async with self.news:
            self.news.notify_all()

    async def listened(self) -> None:
        """Wait until a poll waits for events."""
        async with asyncio.timeout(20), self.news:
            await self.news.wait_for(lambda: self.listening > 0)

    def sent(self, room: str, kind: str = "m.room.message") -> list[Json]:
        """Return the contents of the bot's events in a room."""
        return [
            one["content"] for place, one in self.events if (place, one["sender"], one["type"]) == (room, BOT, kind)
        ]

    def shown(self, room: str) -> list[str]:
        """Return the current texts of the bot's messages in a room."""
        texts: dict[str, str] = {}
        for place, event in self.events:
            if (place, event["sender"], event["type"]) == (room, BOT, "m.room.message"):
                content = event["content"]
                relation = content.get("m.relates_to") or {}
                edits = relation["event_id"] if relation.get("rel_type") == "m.replace" else ""
                texts[edits or event["event_id"]] = str((content["m.new_content"] if edits else content)["body"])
        return list(texts.values())
