"""Catch-up on Slack: each channel's cursor, and the reading of channel histories in the background."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import structlog
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from connectors.base import ConnectorContext
from connectors.failures import AmbiguousSend, NotDispatched, PermanentSend, RetryableSend, SendFailure
from connectors.slack.api import NO_THREAD, Fields, call_slack
from connectors.slack.platform import SlackOptions
from connectors.slack.receive import Event, is_direct
from maestro.domain.messages import AcceptedMessage, IncomingMessage

PAGE = 100
MOST_THREADS = 20
"""The most older threads of one channel in which catch-up looks for new replies."""
PAUSES = (1.0, 5.0, 15.0, 60.0)
"""The waits in seconds before each retry of a failed read; after the last retry the read fails."""

PATIENCE = 1.5
"""Seconds that a message waits for earlier missed messages; Slack expects an acknowledgement within three seconds."""

log = structlog.get_logger(__name__)

RETRY_SECONDS = 60.0
"""Seconds until channels that could not be read are read again."""


class SlackHistory:
    """A reader of channel histories that makes one call at a time."""

    def __init__(self, web: AsyncWebClient, options: SlackOptions) -> None:
        self._web = web
        self._options = options
        self._next = 0.0

    async def read_after(
        self, channel: str, after_id: str, threads: Sequence[str], oldest: str
    ) -> tuple[Sequence[Event], bool]:
        """Return the messages after ``after_id``, oldest first, and whether there may be more unread messages.

        The messages are those of the channel, of its recent threads, and of ``threads``; ``oldest`` is the id of the
        first message that may be read. Raises a ``SendFailure``.
        """
        recent, more = await self._read_newest(channel, after_id, oldest)
        active_threads = [message["ts"] for message in recent if str(message.get("latest_reply") or "") > after_id]
        seen = {message["ts"] for message in recent}
        older_threads = [thread for thread in threads if thread not in seen][:MOST_THREADS]
        unread = [message for message in recent if message["ts"] > after_id]
        for thread in (*active_threads, *older_threads):
            unread += await self._read_replies(channel, thread, max(after_id, oldest))
        by_id = {str(message["ts"]): message for message in unread}
        return [by_id[ts] for ts in sorted(by_id)], more

    async def _read_newest(self, channel: str, after_id: str, oldest: str) -> tuple[list[Event], bool]:
        """Return the newest messages of a channel, at least one page, and whether unread messages remain.

        Messages before ``after_id`` are included, because they show which threads have new replies.
        """
        messages: list[Event] = []
        cursor: str | None = None
        while True:
            call = partial(self._web.conversations_history, channel=channel, limit=PAGE, cursor=cursor)
            page, cursor = _split_page(await self._call_with_retry(call))
            messages += page
            if cursor is None or messages[-1]["ts"] <= after_id:
                return messages, False
            unread = sum(row["ts"] > after_id for row in messages)
            if messages[-1]["ts"] < oldest or unread >= self._options.catch_up_messages:
                return messages, True

    async def _read_replies(self, channel: str, thread: str, after_id: str) -> list[Event]:
        """Return the messages of a thread after ``after_id``; none if the thread was deleted."""
        replies: list[Event] = []
        cursor: str | None = None
        call = partial(self._web.conversations_replies, channel=channel, ts=thread, oldest=after_id, limit=PAGE)
        while True:
            try:
                page, cursor = _split_page(await self._call_with_retry(partial(call, cursor=cursor)))
            except PermanentSend as refused:
                if refused.code != NO_THREAD:
                    raise
                return replies
            replies += [message for message in page if message["ts"] > after_id]
            if cursor is None:
                return replies

    async def _call_with_retry(self, call: Callable[[], Awaitable[AsyncSlackResponse]]) -> Fields:
        """Make a call after the pause between reads; retry while Slack limits the rate or cannot be reached."""
        pauses = iter(PAUSES)
        while True:
            await asyncio.sleep(self._next - time.monotonic())
            self._next = time.monotonic() + self._options.history_seconds
            try:
                return await call_slack(call())
            except RetryableSend as busy:
                self._next = time.monotonic() + busy.retry_after.total_seconds()
            except (NotDispatched, AmbiguousSend):
                wait = next(pauses, None)
                if wait is None:
                    raise
                self._next = time.monotonic() + wait


def _split_page(answer: Fields) -> tuple[list[Event], str | None]:
    """Return the messages of a page and the cursor of the next page, None on the last page."""
    messages = list(answer.get("messages") or ())
    cursor = str((answer.get("response_metadata") or {}).get("next_cursor") or "")
    return messages, cursor if cursor and messages else None


class MessageSink(Protocol):
    """A receiver of missed messages, called for each of them."""

    def is_acceptable(self, channel: str, message: Event) -> bool:
        """Tell whether the receiver accepts a message of this channel."""
        ...

    async def accept_missed(self, channel: str, message: Event) -> None:
        """Accept a missed message; return only when the message is stored or skipped."""
        ...


class SlackCatchUp:
    """The catch-up of one account, which holds the cursor of each channel.

    After a connection broke, messages may be missing in a channel, so its cursor does not move until its history is
    read. Messages that arrive in the meantime are accepted.
    """

    def __init__(self, context: ConnectorContext, history: SlackHistory, options: SlackOptions) -> None:
        self._context = context
        self._history = history
        self._options = options
        self._current: set[str] = set()
        self._seen: dict[str, str] = {}
        self._unread: set[str] = set()
        self._losses = 0
        self._waiting: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._behind = asyncio.Event()

    def request_history_read(self) -> None:
        """Request that every channel is read again, because events may have been lost."""
        self._current.clear()
        self._seen.clear()
        self._losses += 1
        self._behind.set()

    async def read_on_request(self, sink: MessageSink) -> None:
        """Read all channels after each ``request_history_read``, until cancelled."""
        while True:
            await self._behind.wait()
            if not await self.read_all_channels(sink):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await self._behind.wait()
                self._behind.set()

    async def read_all_channels(self, sink: MessageSink) -> bool:
        """Read every known channel once, the most recently used first.

        A channel with a waiting new message is read before the others. Returns whether all channels could be read.
        """
        self._behind.clear()
        threads: defaultdict[str, list[str]] = defaultdict(list)
        for known in await self._context.known_channels():
            threads[known.channel] += [known.thread] if known.thread else []
        self._unread = set(threads)
        complete = True
        while threads and not self._behind.is_set():
            channel = next((channel for channel in threads if channel in self._waiting), next(iter(threads)))
            complete &= await self._read_channel(channel, threads.pop(channel), sink)
        return complete

    async def wait_for_channel(self, channel: str) -> None:
        """Wait until the missed messages of a channel are read, at most ``PATIENCE`` seconds."""
        if channel in self._current:
            return
        if not await self._context.cursor(channel):
            self._current.add(channel)  # A channel without a cursor is new; its earlier messages are not answered.
        elif channel in self._unread or self._behind.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._waiting[channel].wait()

    async def advance_cursor(self, message: IncomingMessage, accepted: AcceptedMessage) -> None:
        """Move the channel's cursor to a message that was accepted, even if the message will not be answered."""
        channel, thread = message.address.channel, message.address.thread
        if channel in self._current:
            await self._context.advance(channel, message.id)
        else:
            self._seen[channel] = max(self._seen.get(channel, ""), message.id)
        if accepted.job_id and thread:
            await self._context.remember_channel(channel, thread, direct=is_direct(channel))

    def record_lost_message(self, channel: str) -> None:
        """Record that a message of a channel was not accepted, so that the cursor stays before the message."""
        self._current.discard(channel)
        self._losses += 1
        self._behind.set()

    async def _read_channel(self, channel: str, threads: Sequence[str], sink: MessageSink) -> bool:
        mark, losses = await self._context.cursor(channel), self._losses
        try:
            if mark and channel not in self._current:
                newest = await self._accept_missed(channel, mark, threads, sink)
                # If a message was lost during this read, the cursor stays at ``newest`` for the next pass.
                newest = max(newest, self._seen.pop(channel, "")) if losses == self._losses else newest
                await self._context.advance(channel, newest)
        except SendFailure as failure:
            log.warning("slack.catch_up_failed", channel=channel, reason=str(failure))
            if not isinstance(failure, PermanentSend):
                return False  # After a permanent failure a retry is useless, so the channel counts as read.
        finally:
            self._unread.discard(channel)
            self._waiting.pop(channel, asyncio.Event()).set()
        if losses == self._losses:
            self._current.add(channel)
        return True

    async def _accept_missed(self, channel: str, after_id: str, threads: Sequence[str], sink: MessageSink) -> str:
        """Accept the newest messages after ``after_id``; return the id up to which the channel was read."""
        since = datetime.now(UTC) - timedelta(hours=self._options.catch_up_hours)
        oldest, most = f"{since.timestamp():.6f}", self._options.catch_up_messages
        unread, more = await self._history.read_after(channel, after_id, threads, oldest)
        readable = [message for message in unread if sink.is_acceptable(channel, message)]
        young = [message for message in readable if message["ts"] >= oldest]
        selected = young[-most:] if most else []
        skipped = len(readable) - len(selected)
        if skipped or more:
            limit = "catchUpMessages" if len(selected) < len(young) else "catchUpHours"
            why = f"written while Maestro was not connected, and beyond the limit {limit}"
            await self._context.skipped(channel, 0 if more else skipped, why)
        for message in selected:
            await sink.accept_missed(channel, message)
        return max([after_id, *(str(message["ts"]) for message in unread)])
