"""What stands in a channel and its threads after a message, read slowly enough for Slack's limits."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from connectors.slack.api import Fields, called
from connectors.slack.errors import NO_THREAD, Busy, Refused, Unreachable, Unsure

PAGE = 100
MOST_THREADS = 20
"""Threads of one channel, begun before the messages that are looked at, in which replies are looked for."""
PAUSES = (1.0, 5.0, 15.0, 60.0)
"""Seconds before a read that failed is tried again; after the last of them it is given up."""

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Caps:
    """How much of a channel is read: so many messages, none from before ``oldest``."""

    messages: int
    oldest: str


@dataclass(frozen=True)
class Missed:
    """What was written, oldest first, and whether there may be more of it that was not read."""

    messages: Sequence[Message]
    more: bool


class History:
    """Reads channels, one call after another."""

    def __init__(self, web: AsyncWebClient, pause: float) -> None:
        """``pause`` is the least number of seconds between two calls."""
        self._web = web
        self._pause = pause
        self._next = 0.0

    async def after(self, channel: str, mark: str, threads: Sequence[str], caps: Caps) -> Missed:
        """Return what came after ``mark``: in the channel, in threads that began there lately, and in ``threads``.

        Raises a ``SlackTrouble``.
        """
        top, more = await self._top(channel, mark, caps)
        talked = [one["ts"] for one in top if str(one.get("latest_reply") or "") > mark]
        seen = {one["ts"] for one in top}
        far = [thread for thread in threads if thread not in seen][:MOST_THREADS]
        found = [one for one in top if one["ts"] > mark]
        for thread in (*talked, *far):
            found += await self._replies(channel, thread, max(mark, caps.oldest))
        return Missed(in_order(found), more)

    async def _top(self, channel: str, mark: str, caps: Caps) -> tuple[list[Message], bool]:
        """Return the newest messages of a channel, at least a page of them, and whether older ones came after the mark.

        Those that are there anyway tell in which threads somebody wrote.
        """
        found: list[Message] = []
        cursor: str | None = None
        while True:
            call = partial(self._web.conversations_history, channel=channel, limit=PAGE, cursor=cursor)
            messages, cursor = _page(await self._read(call))
            found += messages
            if cursor is None or found[-1]["ts"] <= mark:
                return found, False
            if found[-1]["ts"] < caps.oldest or sum(one["ts"] > mark for one in found) >= caps.messages:
                return found, True

    async def _replies(self, channel: str, thread: str, mark: str) -> list[Message]:
        """Return what came in a thread after the mark, nothing of one that is gone."""
        found: list[Message] = []
        cursor: str | None = None
        ask = partial(self._web.conversations_replies, channel=channel, ts=thread, oldest=mark, limit=PAGE)
        while True:
            try:
                messages, cursor = _page(await self._read(partial(ask, cursor=cursor)))
            except Refused as refused:
                if refused.code != NO_THREAD:
                    raise
                return found
            found += [one for one in messages if one["ts"] > mark]
            if cursor is None:
                return found

    async def _read(self, call: Callable[[], Awaitable[AsyncSlackResponse]]) -> Fields:
        """Make a call when its turn has come, again and again while Slack is busy or cannot be reached."""
        pauses = iter(PAUSES)
        while True:
            await asyncio.sleep(self._next - time.monotonic())
            self._next = time.monotonic() + self._pause
            try:
                return await called(call())
            except Busy as busy:
                self._next = time.monotonic() + busy.after.total_seconds()
            except (Unreachable, Unsure):
                wait = next(pauses, None)
                if wait is None:
                    raise
                self._next = time.monotonic() + wait


def _page(answer: Fields) -> tuple[list[Message], str | None]:
    """Return the messages of a page and where the next one begins, None for the last one."""
    messages = list(answer.get("messages") or ())
    following = str((answer.get("response_metadata") or {}).get("next_cursor") or "")
    return messages, following if following and messages else None


def in_order(messages: Iterable[Message]) -> list[Message]:
    """Return each message once, by its time."""
    once = {str(one["ts"]): one for one in messages}
    return [once[ts] for ts in sorted(once)]


def ts_before(now: datetime, age: timedelta) -> str:
    """Return what the id of a message is that is as old as that."""
    return f"{(now - age).timestamp():.6f}"
