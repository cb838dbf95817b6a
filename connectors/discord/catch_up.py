"""Catch-up on Discord: each channel's cursor and event queue, and the reading of messages missed in an outage."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

import discord
import structlog

from connectors.base import ConnectorContext
from connectors.discord.platform import DiscordOptions
from connectors.discord.receive import DiscordChannel

WRITE_SECONDS = 1.0
"""Seconds between two writes of changed cursors; after a crash, messages after the last write are read again."""

log = structlog.get_logger(__name__)

MOST_WAITING = 200
"""The most queued events of a channel; above this number the events are dropped, and the history is read instead."""
PAUSES = (1.0, 5.0, 15.0, 60.0)
"""Seconds before each retry of a failed read or event."""

Work = Callable[[], Awaitable[None]]

AT_ONCE = 4
"""The most channel histories read at once, so that catch-up does not use up the rate limit of a bot on many servers."""


class DiscordCursors:
    """The cursor of each channel: the id of its newest processed message, written to the store every second."""

    def __init__(self, context: ConnectorContext) -> None:
        self._context = context
        self._known: dict[int, int] = {}
        self._unwritten: dict[int, DiscordChannel] = {}
        self._initial: dict[int, int] = {}
        """The cursor of each channel at its first use in this connection."""

    async def read_cursor(self, channel: DiscordChannel) -> int | None:
        """Return the id of the newest message that was accepted or skipped, None in a new channel."""
        if channel.id not in self._known:
            mark = await self._context.cursor(channel.address_channel, channel.thread)
            if not mark:
                return None
            self._initial.setdefault(channel.id, self._known.setdefault(channel.id, int(mark)))
        return self._known[channel.id]

    async def cursor_at_connect(self, channel: DiscordChannel) -> int | None:
        """Return the cursor that a channel had when this connection began, or None."""
        await self.read_cursor(channel)
        return self._initial.get(channel.id)

    async def set_first_cursor(self, channel: DiscordChannel, message_id: int) -> None:
        """Set the first cursor of a new channel; messages up to this id are not answered."""
        self._known[channel.id] = max(message_id, self._known.get(channel.id, 0))
        await self._context.remember_channel(channel.address_channel, channel.thread, direct=channel.is_direct)
        await self._context.advance(channel.address_channel, str(self._known[channel.id]), channel.thread)

    def advance_cursor(self, channel: DiscordChannel, message_id: int) -> None:
        """Record that all messages up to this id are accepted; the cursor never goes back."""
        if message_id > self._known.get(channel.id, 0):
            self._known[channel.id] = message_id
            self._unwritten[channel.id] = channel

    async def write_periodically(self) -> None:
        """Write changed cursors to the store every second until cancelled."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self.write_cursors()
            # Any error of the store is retried after a second, so that no cursor is lost (docs/invariants.md: no silent
            # end).
            except Exception as error:  # noqa: BLE001 - see above
                log.warning("discord.cursors_not_written", error=type(error).__name__)

    async def write_cursors(self) -> None:
        """Write the cursors that have changed since the last write."""
        for number, channel in tuple(self._unwritten.items()):
            mark = self._known[number]
            await self._context.advance(channel.address_channel, str(mark), channel.thread)
            if self._known[number] == mark:
                self._unwritten.pop(number, None)


@dataclass
class ChannelQueue:
    """The queued events of one channel; if it is ``behind``, the channel's history is read first.

    ``newest`` is the id of the last message of the history to read, None if that id is unknown.
    """

    channel: DiscordChannel
    waiting: deque[Work] = field(default_factory=deque)
    behind: bool = False
    newest: int | None = None
    failures: int = 0
    worker: asyncio.Task[None] | None = None

    def request_history(self, newest: int | None = None) -> None:
        """Request to read the history up to message ``newest`` before the next event; None reads the whole history."""
        known = newest is not None and (not self.behind or self.newest is not None)
        self.newest = max(newest or 0, self.newest or 0) if known else None
        self.behind = True


async def retry_until_done(work: Callable[[], Awaitable[object]]) -> None:
    """Repeat ``work`` with growing pauses until it succeeds."""
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            await work()
        # Any error of Discord or of the store is retried (docs/invariants.md: no silent end).
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("discord.later", error=type(error).__name__, seconds=pause)
            await asyncio.sleep(pause)
        else:
            return


class ChannelQueues:
    """All channel queues of a connection; ``read`` accepts the messages after a channel's cursor."""

    def __init__(self, read: Callable[[DiscordChannel, int | None], Awaitable[None]]) -> None:
        self._read = read
        self._queues: dict[int, ChannelQueue] = {}
        self._settled: set[int] = set()
        """The channels in which no message between the cursor and the next event is missing."""
        self._session = 0

    def begin_session(self) -> None:
        """Begin a new session: in each channel, messages before the next event may be missing."""
        self._settled.clear()
        self._session += 1
        for queue in self._queues.values():
            queue.newest = None

    def put_event(self, channel: DiscordChannel, work: Work) -> None:
        """Queue an event; if messages before the event may be missing, the channel's history is read first."""
        queue = self._find_or_add_queue(channel)
        if channel.id not in self._settled:
            queue.request_history()
        if len(queue.waiting) < MOST_WAITING:
            queue.waiting.append(work)
        else:
            queue.waiting.clear()
            queue.request_history()
        self._start_worker(queue)

    def catch_up(self, channel: DiscordChannel, newest: int | None = None) -> None:
        """Read the channel's history before its next event."""
        queue = self._find_or_add_queue(channel)
        queue.request_history(newest)
        self._start_worker(queue)

    async def close_queues(self) -> None:
        """Stop all workers; the next connection reads the messages still queued from the histories."""
        workers = [queue.worker for queue in self._queues.values() if queue.worker is not None]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _find_or_add_queue(self, channel: DiscordChannel) -> ChannelQueue:
        return self._queues.setdefault(channel.id, ChannelQueue(channel))

    def _start_worker(self, queue: ChannelQueue) -> None:
        if queue.worker is None:
            queue.worker = asyncio.create_task(self._run_worker(queue))

    async def _run_worker(self, queue: ChannelQueue) -> None:
        try:
            while queue.behind or queue.waiting:
                await self._process_next(queue)
        finally:
            del self._queues[queue.channel.id]

    async def _process_next(self, queue: ChannelQueue) -> None:
        try:
            if queue.behind:
                await self._read_history(queue)
            else:
                await queue.waiting.popleft()()
            queue.failures = 0
        # Messages that could not be stored are read from the history again (docs/invariants.md: no silent end).
        except Exception as error:  # noqa: BLE001 - see above
            queue.request_history()
            pause = PAUSES[min(queue.failures, len(PAUSES) - 1)]
            queue.failures += 1
            log.warning("discord.later", channel=queue.channel.id, error=type(error).__name__, seconds=pause)
            await asyncio.sleep(pause)

    async def _read_history(self, queue: ChannelQueue) -> None:
        """Read a channel's history; the channel then counts as complete unless a new session began meanwhile."""
        session, newest = self._session, queue.newest
        queue.behind = False
        await self._read(queue.channel, newest)
        if session == self._session:
            self._settled.add(queue.channel.id)


class DiscordCatchUp:
    """A reader of channel histories, which passes each missed message to ``accept``."""

    def __init__(
        self,
        client: discord.Client,
        options: DiscordOptions,
        context: ConnectorContext,
        cursors: DiscordCursors,
        accept: Callable[[discord.Message, DiscordChannel], Awaitable[None]],
    ) -> None:
        self._client = client
        self._options = options
        self._context = context
        self._cursors = cursors
        self._accept = accept
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read_channel(self, channel: DiscordChannel, newest: int | None) -> None:
        """Accept the messages after a channel's cursor, up to ``newest``, the id of its last message; None if unknown.

        A new channel begins at ``newest``, so no earlier message is answered. Raises the errors of Discord and of the
        store.
        """
        cursor = await self._cursors.read_cursor(channel)
        if cursor is None and newest is not None:
            cursor = await self._start_cursor(channel, newest)
        if cursor is None or (newest is not None and newest <= cursor):
            return
        most, hours = self._options.catch_up_messages, self._options.catch_up_hours
        source = self._client.get_partial_messageable(channel.id, guild_id=channel.guild)
        # The history is read newest first, so that above the limit the oldest messages are skipped.
        history = source.history(after=discord.Object(cursor), oldest_first=False, limit=most + 1)
        try:
            async with self._slots:
                missed = [message async for message in history]
        except (discord.Forbidden, discord.NotFound) as error:
            why = f"the history may not be read ({error.status}, code {error.code})"
            await self._context.skipped(str(channel.id), 0, why)
            return
        oldest = datetime.now(UTC) - timedelta(hours=hours)
        young = [message for message in missed[:most] if message.created_at >= oldest]
        for message in reversed(young):
            await self._accept(message, channel)
        if len(missed) > most:
            await self._context.skipped(str(channel.id), 0, f"more than {most} messages were missed (catchUpMessages)")
        elif len(missed) > len(young):
            why = f"they are older than {hours:g} hours (catchUpHours)"
            await self._context.skipped(str(channel.id), len(missed) - len(young), why)
        self._cursors.advance_cursor(channel, missed[0].id if missed else cursor)

    async def _start_cursor(self, channel: DiscordChannel, newest: int) -> int:
        """Set the first cursor of a channel; a thread younger than the cursor of its channel is read from its start."""
        parent = DiscordChannel(channel.parent, guild=channel.guild)
        parent_cursor = await self._cursors.cursor_at_connect(parent) if channel.parent else None
        first_cursor = channel.id - 1 if parent_cursor is not None and channel.id > parent_cursor else newest
        await self._cursors.set_first_cursor(channel, first_cursor)
        return first_cursor


def list_channels(guild: discord.Guild) -> Iterator[tuple[DiscordChannel, int]]:
    """Yield the text, voice and stage channels and the threads of a server, each with the id of its last message."""
    channels: list[discord.TextChannel | discord.VoiceChannel | discord.StageChannel] = [
        *guild.text_channels,
        *guild.voice_channels,
        *guild.stage_channels,
    ]
    for channel in channels:
        yield DiscordChannel(channel.id, guild=guild.id), channel.last_message_id or channel.id
    for thread in guild.threads:
        yield DiscordChannel(thread.id, thread.parent_id, guild.id), thread.last_message_id or thread.id
