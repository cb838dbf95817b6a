"""A cache of the members of rooms and of the authors of messages."""

from collections import OrderedDict
from typing import TypeVar

from maestro_matrix.errors import Refused
from maestro_matrix.homeserver import Homeserver
from maestro_matrix.receive import MEMBER, Event, Names

Known = TypeVar("Known")

MOST = 1_000
"""The most rooms, and the most authors, in the cache."""


class Rooms:
    """The cache of rooms; every method but ``update_members`` and ``forget`` raises a ``MatrixTrouble``."""

    def __init__(self, server: Homeserver) -> None:
        self._server = server
        self._members: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._authors: OrderedDict[str, str] = OrderedDict()

    async def members(self, room: str) -> Names:
        """Return the display names of a room's members; empty for a room that the bot may not read."""
        if room not in self._members:
            try:
                _add(self._members, room, await self._server.members(room))
            except Refused:
                return {}
        return self._members[room]

    async def author(self, room: str, event_id: str) -> str:
        """Return the author of a message, "" if the author cannot be read."""
        if event_id not in self._authors:
            try:
                _add(self._authors, event_id, str((await self._server.event(room, event_id)).get("sender") or ""))
            except Refused:
                return ""
        return self._authors[event_id]

    def update_members(self, room: str, event: Event) -> None:
        """Update the members of a room from an event about a join, a leave or a new name."""
        members = self._members.get(room)
        if members is None or event.get("type") != MEMBER:
            return
        user, content = str(event.get("state_key") or ""), event["content"]
        if content.get("membership") == "join":
            members[user] = str(content.get("displayname") or "")
        else:
            members.pop(user, None)

    def forget(self, room: str) -> None:
        """Drop a room's members from the cache, because events about joins and leaves may be missing."""
        self._members.pop(room, None)


def _add(cache: OrderedDict[str, Known], name: str, value: Known) -> None:
    cache[name] = value
    if len(cache) > MOST:
        cache.popitem(last=False)
