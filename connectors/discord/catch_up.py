"""Catch-up on Discord: the cursor of each channel, its queue of events, and the history after an outage."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

import discord
import structlog

from connectors.base import ConnectorContext
from connectors.discord.config import DiscordOptions
from connectors.discord.errors import is_final
from connectors.discord.receive import DiscordChannel

WRITE_SECONDS = 1.0
"""How long a cursor may be behind what is in the inbox: after a crash the difference is read once more and known."""

log = structlog.get_logger(__name__)

MOST_WAITING = 200
"""Events of a channel that wait in memory; more are left to Discord, and its history is read instead."""
PAUSES = (1.0, 5.0, 15.0, 60.0)
"""Seconds between two tries to take in what could not be taken in."""


Work = Callable[[], Awaitable[None]]

AT_ONCE = 4
"""Histories that are read at the same time: a bot on many servers must not spend its requests on them alone."""


class DiscordCursors:
    """The newest processed message of each channel, kept in memory and written every second."""

    def __init__(self, context: ConnectorContext) -> None:
        self._context = context
        self._known: dict[int, int] = {}
        self._unwritten: dict[int, DiscordChannel] = {}
        self._found: dict[int, int] = {}
        """What was known of each channel when this connection first asked."""

    async def of(self, place: DiscordChannel) -> int | None:
        """Return the id of the newest message that was accepted or skipped, None in a new channel."""
        if place.id not in self._known:
            mark = await self._context.cursor(place.channel, place.thread)
            if not mark:
                return None
            self._found.setdefault(place.id, self._known.setdefault(place.id, int(mark)))
        return self._known[place.id]

    async def before(self, place: DiscordChannel) -> int | None:
        """Return a channel's cursor from before this connection, even if it has advanced since; None for none."""
        await self.of(place)
        return self._found.get(place.id)

    async def begin_at(self, place: DiscordChannel, number: int) -> None:
        """Record the first message of a channel; earlier messages are not answered."""
        self._known[place.id] = max(number, self._known.get(place.id, 0))
        await self._context.remember_channel(place.channel, place.thread, direct=place.direct)
        await self._context.advance(place.channel, str(self._known[place.id]), place.thread)

    def note(self, place: DiscordChannel, number: int) -> None:
        """Record that everything up to this message is accepted; the cursor never goes back."""
        if number > self._known.get(place.id, 0):
            self._known[place.id] = number
            self._unwritten[place.id] = place

    async def keep_written(self) -> None:
        """Write changed cursors to the store every second until cancelled."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self.write()
            # Any error of the store is retried after a second, so that no cursor is lost (docs/invariants.md: no silent
            # end).
            except Exception as error:  # noqa: BLE001 - see above
                log.warning("discord.cursors_not_written", error=type(error).__name__)

    async def write(self) -> None:
        """Write the cursors that have changed since the last write."""
        for number, place in tuple(self._unwritten.items()):
            mark = self._known[number]
            await self._context.advance(place.channel, str(mark), place.thread)
            if self._known[number] == mark:
                self._unwritten.pop(number, None)


@dataclass
class ChannelQueue:
    """The waiting events of one channel; if it is ``behind``, its history is read first.

    ``newest`` is the last message of the history, None where it is unknown.
    """

    place: DiscordChannel
    waiting: deque[Work] = field(default_factory=deque)
    behind: bool = False
    newest: int | None = None
    failures: int = 0
    worker: asyncio.Task[None] | None = None

    def fall_behind(self, newest: int | None = None) -> None:
        """Have the history read next; what was known of it before counts no more when nothing is known now."""
        known = newest is not None and (not self.behind or self.newest is not None)
        self.newest = max(newest or 0, self.newest or 0) if known else None
        self.behind = True


async def retry_until_done(work: Callable[[], Awaitable[object]]) -> None:
    """Repeat the work until it succeeds."""
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            await work()
        # Any error is retried until the store works again (docs/invariants.md: no silent end).
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("discord.later", error=type(error).__name__, seconds=pause)
            await asyncio.sleep(pause)
        else:
            return


class ChannelQueues:
    """All channel queues of a connection; ``read`` accepts the messages after a channel's cursor."""

    def __init__(self, read: Callable[[DiscordChannel, int | None], Awaitable[None]]) -> None:
        self._read = read
        self._lines: dict[int, ChannelQueue] = {}
        self._settled: set[int] = set()
        """Channels whose next event follows what is taken in already."""
        self._session = 0

    def doubt(self) -> None:
        """Begin a new session: each channel may have a gap before its next event."""
        self._settled.clear()
        self._session += 1
        for line in self._lines.values():
            line.newest = None

    def put(self, place: DiscordChannel, work: Work) -> None:
        """Queue an event; in a channel that may have a gap, the history is read first."""
        line = self._line(place)
        if place.id not in self._settled:
            line.fall_behind()
        if len(line.waiting) < MOST_WAITING:
            line.waiting.append(work)
        else:
            line.waiting.clear()
            line.fall_behind()
        self._work_on(line)

    def catch_up(self, place: DiscordChannel, newest: int | None = None) -> "asyncio.Task[None]":
        """Read the channel's history before its next event; the task ends when the queue is empty."""
        line = self._line(place)
        line.fall_behind(newest)
        return self._work_on(line)

    async def close(self) -> None:
        """Stop; the next connection reads the events that still wait from the history."""
        workers = [line.worker for line in self._lines.values() if line.worker is not None]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _line(self, place: DiscordChannel) -> ChannelQueue:
        return self._lines.setdefault(place.id, ChannelQueue(place))

    def _work_on(self, line: ChannelQueue) -> "asyncio.Task[None]":
        if line.worker is None:
            line.worker = asyncio.create_task(self._work(line))
        return line.worker

    async def _work(self, line: ChannelQueue) -> None:
        try:
            while line.behind or line.waiting:
                await self._next(line)
        finally:
            del self._lines[line.place.id]

    async def _next(self, line: ChannelQueue) -> None:
        try:
            if line.behind:
                await self._catch_up(line)
            else:
                await line.waiting.popleft()()
            line.failures = 0
        # Messages that a full inbox or a broken store refused are read again (docs/invariants.md: no silent end).
        except Exception as error:  # noqa: BLE001 - see above
            line.fall_behind()
            pause = PAUSES[min(line.failures, len(PAUSES) - 1)]
            line.failures += 1
            log.warning("discord.later", channel=line.place.id, error=type(error).__name__, seconds=pause)
            await asyncio.sleep(pause)

    async def _catch_up(self, line: ChannelQueue) -> None:
        """Read the history; if another session began meanwhile, there may be a further gap."""
        session, newest = self._session, line.newest
        line.behind = False
        await self._read(line.place, newest)
        if session == self._session:
            self._settled.add(line.place.id)


@dataclass(frozen=True)
class DiscordGap:
    """The messages of a channel after its cursor, oldest first, and the newest of all.

    ``skipped`` counts the others, 0 for an unknown number; ``why`` is empty where there are none.
    """

    messages: Sequence[discord.Message]
    newest: int
    skipped: int = 0
    why: str = ""


class DiscordCatchUp:
    """Decides whether a channel has a gap, and reads it."""

    def __init__(
        self,
        client: discord.Client,
        options: DiscordOptions,
        context: ConnectorContext,
        cursors: DiscordCursors,
        take: Callable[[discord.Message, DiscordChannel], Awaitable[None]],
    ) -> None:
        self._client = client
        self._options = options
        self._context = context
        self._cursors = cursors
        self._take = take
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def read(self, place: DiscordChannel, newest: int | None) -> None:
        """Take in what the channel has after its cursor; ``newest`` is its last message, None where it is unknown.

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

    async def _first_sight(self, place: DiscordChannel, newest: int) -> int:
        """Set the first cursor of a channel; a thread younger than the cursor of its channel is read from its start."""
        beginning = newest
        if place.parent:
            channel = await self._cursors.before(DiscordChannel(place.parent, guild=place.guild))
            beginning = place.id - 1 if channel is not None and place.id > channel else newest
        await self._cursors.begin_at(place, beginning)
        return beginning

    async def _missed(self, place: DiscordChannel, cursor: int) -> DiscordGap:
        """Return the missed messages, read newest first: above the cap, the oldest ones are skipped."""
        most, after = self._options.catch_up_messages, discord.Object(cursor)
        channel = self._client.get_partial_messageable(place.id, guild_id=place.guild)
        found: list[discord.Message] = []
        try:
            async for message in channel.history(after=after, oldest_first=False, limit=most + 1):
                found.append(message)
        except discord.HTTPException as error:
            if is_final(error):
                return DiscordGap((), cursor, 0, f"the history may not be read ({error.status}, code {error.code})")
            raise
        return within(found, self._options, datetime.now(UTC), cursor)


def within(found: Sequence[discord.Message], options: DiscordOptions, now: datetime, cursor: int) -> DiscordGap:
    """Return the messages within the caps; ``found`` is newest first, at most one more than the cap."""
    newest = found[0].id if found else cursor
    oldest = now - timedelta(hours=options.catch_up_hours)
    young = [message for message in found[: options.catch_up_messages] if message.created_at >= oldest]
    left_out = len(found) - len(young)
    if not left_out:
        return DiscordGap(found[::-1], newest)
    if len(found) > options.catch_up_messages:
        return DiscordGap(
            young[::-1], newest, 0, f"more than {options.catch_up_messages} were missed (catchUpMessages)"
        )
    return DiscordGap(
        young[::-1], newest, left_out, f"they are older than {options.catch_up_hours:g} hours (catchUpHours)"
    )


def channels_of(guild: discord.Guild) -> Iterator[tuple[DiscordChannel, int]]:
    """Yield every text channel of a server, and the id of its last message."""
    said_in: list[discord.TextChannel | discord.VoiceChannel | discord.StageChannel] = [
        *guild.text_channels,
        *guild.voice_channels,
        *guild.stage_channels,
    ]
    for channel in said_in:
        yield DiscordChannel(channel.id, guild=guild.id), channel.last_message_id or channel.id
    for thread in guild.threads:
        yield DiscordChannel(thread.id, thread.parent_id, guild.id), thread.last_message_id or thread.id
