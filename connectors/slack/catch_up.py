"""Takes in what was written while nobody listened, in the background, and knows which channels are read up to now."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from connectors.base import ConnectorContext
from connectors.slack.config import SlackOptions
from connectors.slack.errors import Refused, SlackTrouble
from connectors.slack.history import Caps, History, Message, ts_before
from connectors.slack.receive import is_direct
from maestro.domain.messages import Accepted, IncomingMessage

PATIENCE = 1.5
"""Seconds a new message waits for those before it to be read; Slack waits three for our word that we have it."""

log = structlog.get_logger(__name__)

RETRY_SECONDS = 60.0
"""When channels that could not be read are tried again."""


class Taker(Protocol):
    """What takes messages in that were found in a channel."""

    def hears(self, channel: str, message: Message) -> bool:
        """Say whether a message is one for us."""
        ...

    async def take(self, channel: str, message: Message) -> None:
        """Take a message in, however long that takes."""
        ...


@dataclass(frozen=True)
class Found:
    """What of a channel is to be taken in; ``why`` says why more is not, ``skipped`` how much, 0 for nobody knows."""

    messages: Sequence[Message]
    skipped: int = 0
    why: str = ""


class CatchUp:
    """Keeps the cursor of each channel.

    After a connection broke nobody knows what a channel has, so its cursor stays where it is until the channel was
    read; what comes in meanwhile is taken in all the same.
    """

    def __init__(self, context: ConnectorContext, history: History, options: SlackOptions) -> None:
        self._context = context
        self._history = history
        self._options = options
        self._current: set[str] = set()
        self._seen: dict[str, str] = {}
        self._unread: set[str] = set()
        self._losses = 0
        self._waiting: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._behind = asyncio.Event()

    def look_again(self) -> None:
        """Let every channel be read anew: events may have been lost."""
        self._current.clear()
        self._seen.clear()
        self._losses += 1
        self._behind.set()

    async def work(self, taker: Taker) -> None:
        """Read what is to be read, for ever: all channels after each ``look_again``."""
        while True:
            await self._behind.wait()
            if not await self.through(taker):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await self._behind.wait()
                self._behind.set()

    async def through(self, taker: Taker) -> bool:
        """Read every known channel once, the one seen last first; one in which somebody writes now goes before.

        Returns whether all could be read.
        """
        self._behind.clear()
        threads: defaultdict[str, list[str]] = defaultdict(list)
        for known in await self._context.known_channels():
            threads[known.channel] += [known.thread] if known.thread else []
        self._unread = set(threads)
        complete = True
        while threads and not self._behind.is_set():
            channel = next((one for one in threads if one in self._waiting), next(iter(threads)))
            complete &= await self._read(channel, threads.pop(channel), taker)
        return complete

    async def ready(self, channel: str) -> None:
        """Return when what a channel missed was taken in, or when that takes too long for a message to wait."""
        if channel in self._current:
            return
        if not await self._context.cursor(channel):
            self._current.add(channel)  # seen for the first time: what was said there before is not for us
        elif channel in self._unread or self._behind.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._waiting[channel].wait()

    async def took(self, message: IncomingMessage, accepted: Accepted) -> None:
        """Note a message that is in the inbox, or counted there."""
        channel, thread = message.address.channel, message.address.thread
        if channel in self._current:
            await self._context.advance(channel, message.id)
        else:
            self._seen[channel] = max(self._seen.get(channel, ""), message.id)
        if accepted.job_id and thread:
            await self._context.remember_channel(channel, thread, direct=is_direct(channel))

    def lost(self, channel: str) -> None:
        """Note that a message of a channel was not taken in: its cursor stays before it."""
        self._current.discard(channel)
        self._losses += 1
        self._behind.set()

    async def _read(self, channel: str, threads: Sequence[str], taker: Taker) -> bool:
        mark, losses = await self._context.cursor(channel), self._losses
        try:
            if mark and channel not in self._current:
                newest = await self._take_in(channel, mark, threads, taker)
                # What was lost while we read came after that: the next pass reads it, from what we know now.
                newest = max(newest, self._seen.pop(channel, "")) if losses == self._losses else newest
                await self._context.advance(channel, newest)
        except SlackTrouble as trouble:
            log.warning("slack.catch_up_failed", channel=channel, reason=str(trouble))
            if not isinstance(trouble, Refused):
                return False  # who is refused may not read what was said there, and has nothing to catch up with
        finally:
            self._unread.discard(channel)
            self._waiting.pop(channel, asyncio.Event()).set()
        if losses == self._losses:
            self._current.add(channel)
        return True

    async def _take_in(self, channel: str, mark: str, threads: Sequence[str], taker: Taker) -> str:
        """Take in what came after the mark; return up to which message the channel was read."""
        caps = self._caps()
        missed = await self._history.after(channel, mark, threads, caps)
        found = within([one for one in missed.messages if taker.hears(channel, one)], caps, more=missed.more)
        if found.why:
            await self._context.skipped(channel, found.skipped, found.why)
        for message in found.messages:
            await taker.take(channel, message)
        return max([mark, *(str(one["ts"]) for one in missed.messages)])

    def _caps(self) -> Caps:
        age = timedelta(hours=self._options.catch_up_hours)
        return Caps(self._options.catch_up_messages, ts_before(datetime.now(UTC), age))


def within(messages: Sequence[Message], caps: Caps, *, more: bool) -> Found:
    """Return the newest of what was missed, as much as the caps allow; ``more`` says that not all of it was read."""
    young = [one for one in messages if one["ts"] >= caps.oldest]
    kept = young[-caps.messages :] if caps.messages else []
    skipped = len(messages) - len(kept)
    if not skipped and not more:
        return Found(kept)
    why = "they were too many" if len(kept) < len(young) else "they were too old"
    return Found(kept, 0 if more else skipped, f"written while Maestro was not connected, and {why} to be read later")
