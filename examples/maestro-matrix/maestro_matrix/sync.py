"""The poll loop of one account: the position in the event stream moves on once all events are in the inbox."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

import structlog

from connectors.base import ConnectorContext, ConnectorState
from maestro.domain.errors import Backlogged, StoreBusy
from maestro_matrix.errors import Busy, MatrixTrouble, Refused, account_refusal
from maestro_matrix.homeserver import Homeserver, Json
from maestro_matrix.inbound import Inbound
from maestro_matrix.platform import MatrixOptions
from maestro_matrix.receive import MESSAGE, Event, MatrixBot, event_time, events_since_invitation, has_joined
from maestro_matrix.rooms import Rooms

LISTEN_SECONDS = 30.0
"""Seconds for which the homeserver may hold a poll until there is an event."""
UNKNOWN_POSITION = frozenset({"M_INVALID_PARAM", "M_UNKNOWN", "M_UNKNOWN_POS"})
"""The error codes of a homeserver that no longer knows the position of a poll."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CatchUpLimits:
    """The limits of catch-up: the most missed messages of a room, and the time of the oldest one."""

    messages: int
    oldest: datetime


class Sync:
    """The poll loop of one account.

    The homeserver's position in the event stream is opaque and covers all rooms. It is stored as the cursor of a
    channel with the id of the account, so that another account begins anew.
    """

    def __init__(
        self, server: Homeserver, context: ConnectorContext, inbound: Inbound, rooms: Rooms, options: MatrixOptions
    ) -> None:
        self._server, self._context, self._inbound = server, context, inbound
        self._rooms, self._options = rooms, options

    async def run(self, bot: MatrixBot) -> None:
        """Poll until cancelled; raises ``AccountRefused``, and any error of the store except ``StoreBusy``."""
        well, missed, tries = False, True, pauses()
        while True:
            try:
                await self._step(bot, missed)
            except (MatrixTrouble, Backlogged, StoreBusy) as error:
                well, missed = False, missed or isinstance(error, MatrixTrouble)
                await wait(self._context, error, next(tries))
            else:
                if not well:
                    await self._context.report(ConnectorState.RUNNING, bot.user_id)
                well, missed, tries = True, False, pauses()

    async def _step(self, bot: MatrixBot, missed: bool) -> None:
        """Process the events since the last poll; after a failure the next poll returns all of them again."""
        mark = await self._context.cursor(bot.user_id) or ""
        since = read_position(mark)
        try:
            answer = await self._server.sync(since, 0 if missed or not since else LISTEN_SECONDS)
        except Refused as refused:
            if not since or refused.code not in UNKNOWN_POSITION:
                raise
            await self._context.skipped(bot.user_id, 0, "the homeserver no longer knows the position of the last poll")
            since, answer = "", await self._server.sync("", 0)
        rooms = answer.get("rooms") or {}
        if since:  # messages before the first connection are not answered
            for room, one in (rooms.get("join") or {}).items():
                await self._process_room(room, one.get("timeline") or {}, since, bot, missed)
        for room, one in (rooms.get("invite") or {}).items():
            await self._inbound.accept_invitation(room, one, bot)
        if answer["next_batch"] != since:
            await self._context.advance(bot.user_id, next_cursor(mark, answer["next_batch"]))

    async def _process_room(self, room: str, timeline: Json, since: str, bot: MatrixBot, missed: bool) -> None:
        newest = timeline.get("events") or ()
        events, has_begun = events_since_invitation(newest, bot)
        limits, more = self._limits(), False
        if timeline.get("limited") and not has_begun:
            self._rooms.forget(room)
            end = "" if has_joined(newest, bot) else since  # no earlier poll returned events of a room before the join
            before, more = await self._read_gap(room, str(timeline.get("prev_batch") or ""), end, bot, limits)
            events, missed = [*before, *events], True
        if missed:
            events, skipped, why = apply_limits(events, limits, bot, more=more)
            if why:
                await self._context.skipped(room, skipped, why)
        await self._inbound.process_events(room, events, bot)

    async def _read_gap(
        self, room: str, start: str, end: str, bot: MatrixBot, limits: CatchUpLimits
    ) -> tuple[Sequence[Event], bool]:
        """Return a room's events before ``start``, oldest first, and whether unread events remain."""
        found: list[Event] = []
        while start:
            page = await self._server.earlier(room, start, end)
            chunk = list(page.get("chunk") or ())[::-1]
            ours, has_begun = events_since_invitation(chunk, bot)
            found[:0] = ours
            if has_begun or not chunk:
                return found, False
            if len(found) > limits.messages or event_time(chunk[0]) < limits.oldest:
                return found, True
            start = str(page.get("end") or "")
        return found, False

    def _limits(self) -> CatchUpLimits:
        age = timedelta(hours=self._options.catch_up_hours)
        return CatchUpLimits(self._options.catch_up_messages, datetime.now(UTC) - age)


def apply_limits(
    events: Sequence[Event], limits: CatchUpLimits, bot: MatrixBot, *, more: bool
) -> tuple[Sequence[Event], int, str]:
    """Return the events within the limits of catch-up, the number of skipped messages (0 if unknown), and why."""
    received = [one for one in events if one.get("type") == MESSAGE and one.get("sender") != bot.user_id]
    young = [one for one in received if event_time(one) >= limits.oldest]
    recent = young[-limits.messages :] if limits.messages else []
    if len(recent) == len(received) and not more:
        return events, 0, ""
    skipped_ids = {one["event_id"] for one in received} - {one["event_id"] for one in recent}
    why = "they were too many" if len(recent) < len(young) else "they were too old"
    rest = [one for one in events if one.get("event_id") not in skipped_ids]
    return rest, 0 if more else len(skipped_ids), f"written while Maestro was not connected, and {why} to be read later"


def read_position(mark: str) -> str:
    """Return the homeserver's position in a cursor, "" for the beginning."""
    return mark.partition(" ")[2].rstrip()


def next_cursor(mark: str, word: str) -> str:
    """Return the cursor after ``mark`` for a new position of the homeserver.

    Of two cursors the longer one is later, then the one that sorts later. A cursor therefore begins with a growing
    number, and is never shorter than the cursor before.
    """
    number = int(mark.partition(" ")[0] or 0) + 1
    return f"{number:016d} {word}".ljust(len(mark))


async def wait(context: ConnectorContext, error: Exception, pause: float) -> None:
    """Report the failure to operators and wait; raises ``AccountRefused`` when only an operator can fix the problem."""
    refused = account_refusal(error) if isinstance(error, MatrixTrouble) else None
    if refused is not None:
        raise refused
    log.warning("matrix.disconnected", reason=str(error))
    await context.report(ConnectorState.DEGRADED, str(error))
    await asyncio.sleep(max(pause, error.after.total_seconds()) if isinstance(error, Busy) else pause)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each connection attempt; the first wait is 0."""
    return chain((0.0, 1.0, 2.0, 5.0, 15.0, 30.0), repeat(60.0))
