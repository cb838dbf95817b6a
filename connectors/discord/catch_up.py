"""What was written while nobody listened: read from each channel's history, within limits, and never twice."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import discord

from connectors.base import ConnectorContext
from connectors.discord.config import DiscordOptions
from connectors.discord.cursors import Cursors
from connectors.discord.errors import is_final
from connectors.discord.receive import Place

AT_ONCE = 4
"""Histories that are read at the same time: a bot on many servers must not spend its requests on them alone."""


@dataclass(frozen=True)
class Missed:
    """What a channel has after its cursor: messages to take in, oldest first, and the newest of all.

    ``skipped`` counts the others, 0 for an unknown number; ``why`` is empty where there are none.
    """

    messages: Sequence[discord.Message]
    newest: int
    skipped: int = 0
    why: str = ""


class CatchUp:
    """Decides whether a channel has a gap, and reads it."""

    def __init__(
        self,
        client: discord.Client,
        options: DiscordOptions,
        context: ConnectorContext,
        cursors: Cursors,
        take: Callable[[discord.Message, Place], Awaitable[None]],
    ) -> None:
        self._client = client
        self._options = options
        self._context = context
        self._cursors = cursors
        self._take = take
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def read(self, place: Place, newest: int | None) -> None:
        """Take in what the channel has after its cursor; ``newest`` is its last message, None where nobody said.

        At first sight it has nothing: nothing old is answered. Raises what Discord or the store raise.
        """
        cursor = await self._cursors.of(place)
        if cursor is None and newest is not None:
            cursor = await self._first_sight(place, newest)
        if cursor is None or (newest is not None and newest <= cursor):
            return
        async with self._turns:
            missed = await self._missed(place, cursor)
        for message in missed.messages:
            await self._take(message, place)
        if missed.why:
            await self._context.skipped(str(place.id), missed.skipped, missed.why)
        self._cursors.note(place, missed.newest)

    async def _first_sight(self, place: Place, newest: int) -> int:
        """Begin with what comes next; a thread that began after we last saw its channel is no old one."""
        beginning = newest
        if place.parent:
            channel = await self._cursors.before(Place(place.parent, guild=place.guild))
            beginning = place.id - 1 if channel is not None and place.id > channel else newest
        await self._cursors.begin_at(place, beginning)
        return beginning

    async def _missed(self, place: Place, cursor: int) -> Missed:
        """Ask for the newest first: when there are too many, it is the oldest that are not answered any more."""
        most, after = self._options.catch_up_messages, discord.Object(cursor)
        channel = self._client.get_partial_messageable(place.id, guild_id=place.guild)
        found: list[discord.Message] = []
        try:
            async for message in channel.history(after=after, oldest_first=False, limit=most + 1):
                found.append(message)
        except discord.HTTPException as error:
            if is_final(error):
                return Missed((), cursor, 0, f"the history may not be read ({error.status}, code {error.code})")
            raise
        return within(found, self._options, datetime.now(UTC), cursor)


def within(found: Sequence[discord.Message], options: DiscordOptions, now: datetime, cursor: int) -> Missed:
    """Leave out what is over the caps; ``found`` is newest first, at most one more than the cap."""
    newest = found[0].id if found else cursor
    oldest = now - timedelta(hours=options.catch_up_hours)
    young = [message for message in found[: options.catch_up_messages] if message.created_at >= oldest]
    left_out = len(found) - len(young)
    if not left_out:
        return Missed(found[::-1], newest)
    if len(found) > options.catch_up_messages:
        return Missed(young[::-1], newest, 0, f"more than {options.catch_up_messages} were missed (catchUpMessages)")
    return Missed(young[::-1], newest, left_out, f"they are older than {options.catch_up_hours:g} hours (catchUpHours)")


def places(guild: discord.Guild) -> Iterator[tuple[Place, int]]:
    """Yield every channel of a server in which people write, and the id of its last message."""
    said_in: list[discord.TextChannel | discord.VoiceChannel | discord.StageChannel] = [
        *guild.text_channels,
        *guild.voice_channels,
        *guild.stage_channels,
    ]
    for channel in said_in:
        yield Place(channel.id, guild=guild.id), channel.last_message_id or channel.id
    for thread in guild.threads:
        yield Place(thread.id, thread.parent_id, guild.id), thread.last_message_id or thread.id
