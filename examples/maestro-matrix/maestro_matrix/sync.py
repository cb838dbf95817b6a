"""The poll loop of one account: the position in the event stream moves on once all events are in the inbox."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

import structlog

from connectors.base import ConnectorContext, ConnectorState
from maestro.domain.errors import Backlogged, StoreBusy
from maestro_matrix.errors import Busy, MatrixTrouble, Refused, refused_account
from maestro_matrix.homeserver import Homeserver, Json
from maestro_matrix.inbound import Inbound
from maestro_matrix.platform import MatrixOptions
from maestro_matrix.receive import MESSAGE, Event, Us, came, moment, since_let_in
from maestro_matrix.rooms import Rooms

LISTEN_SECONDS = 30.0
"""Seconds for which the homeserver may hold a poll until there is an event."""
UNKNOWN_PLACE = frozenset({"M_INVALID_PARAM", "M_UNKNOWN", "M_UNKNOWN_POS"})
"""The error codes of a homeserver that no longer knows the position of a poll."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Caps:
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

    async def run(self, us: Us) -> None:
        """Poll until cancelled; raises ``AccountRefused``, and any error of the store except ``StoreBusy``."""
        well, missed, tries = False, True, pauses()
        while True:
            try:
                await self._step(us, missed)
            except (MatrixTrouble, Backlogged, StoreBusy) as error:
                well, missed = False, missed or isinstance(error, MatrixTrouble)
                await wait(self._context, error, next(tries))
            else:
                if not well:
                    await self._context.report(ConnectorState.RUNNING, us.user_id)
                well, missed, tries = True, False, pauses()

    async def _step(self, us: Us, missed: bool) -> None:
        """Process the events since the last poll; after a failure the next poll returns all of them again."""
        mark = await self._context.cursor(us.user_id) or ""
        since = place(mark)
        try:
            told = await self._server.sync(since, 0 if missed or not since else LISTEN_SECONDS)
        except Refused as refused:
            if not since or refused.code not in UNKNOWN_PLACE:
                raise
            await self._context.skipped(us.user_id, 0, "the homeserver no longer knows the position of the last poll")
            since, told = "", await self._server.sync("", 0)
        rooms = told.get("rooms") or {}
        if since:  # messages before the first connection are not answered
            for room, one in (rooms.get("join") or {}).items():
                await self._room(room, one.get("timeline") or {}, since, us, missed)
        for room, one in (rooms.get("invite") or {}).items():
            await self._inbound.invited(room, one, us)
        if told["next_batch"] != since:
            await self._context.advance(us.user_id, following(mark, told["next_batch"]))

    async def _room(self, room: str, timeline: Json, since: str, us: Us, missed: bool) -> None:
        told = timeline.get("events") or ()
        events, let_in = since_let_in(told, us)
        caps, more = self._caps(), False
        if timeline.get("limited") and not let_in:
            self._rooms.forget(room)
            end = "" if came(told, us) else since  # no earlier poll returned events of a room before the join
            before, more = await self._between(room, str(timeline.get("prev_batch") or ""), end, us, caps)
            events, missed = [*before, *events], True
        if missed:
            events, skipped, why = within(events, caps, us, more=more)
            if why:
                await self._context.skipped(room, skipped, why)
        await self._inbound.take(room, events, us)

    async def _between(self, room: str, start: str, end: str, us: Us, caps: Caps) -> tuple[Sequence[Event], bool]:
        """Return a room's events before ``start``, oldest first, and whether unread events remain."""
        found: list[Event] = []
        while start:
            page = await self._server.earlier(room, start, end)
            chunk = list(page.get("chunk") or ())[::-1]
            ours, let_in = since_let_in(chunk, us)
            found[:0] = ours
            if let_in or not chunk:
                return found, False
            if len(found) > caps.messages or moment(chunk[0]) < caps.oldest:
                return found, True
            start = str(page.get("end") or "")
        return found, False

    def _caps(self) -> Caps:
        age = timedelta(hours=self._options.catch_up_hours)
        return Caps(self._options.catch_up_messages, datetime.now(UTC) - age)


def within(events: Sequence[Event], caps: Caps, us: Us, *, more: bool) -> tuple[Sequence[Event], int, str]:
    """Return the events within the limits of catch-up, the number of skipped messages (0 if unknown), and why."""
    said = [one for one in events if one.get("type") == MESSAGE and one.get("sender") != us.user_id]
    young = [one for one in said if moment(one) >= caps.oldest]
    kept = young[-caps.messages :] if caps.messages else []
    if len(kept) == len(said) and not more:
        return events, 0, ""
    left = {one["event_id"] for one in said} - {one["event_id"] for one in kept}
    why = "they were too many" if len(kept) < len(young) else "they were too old"
    rest = [one for one in events if one.get("event_id") not in left]
    return rest, 0 if more else len(left), f"written while Maestro was not connected, and {why} to be read later"


def place(mark: str) -> str:
    """Return the homeserver's position in a cursor, "" for the beginning."""
    return mark.partition(" ")[2].rstrip()


def following(mark: str, word: str) -> str:
    """Return the cursor after ``mark`` for a new position of the homeserver.

    Of two cursors the longer one is later, then the one that sorts later. A cursor therefore begins with a growing
    number, and is never shorter than the cursor before.
    """
    number = int(mark.partition(" ")[0] or 0) + 1
    return f"{number:016d} {word}".ljust(len(mark))


async def wait(context: ConnectorContext, error: Exception, pause: float) -> None:
    """Report the failure to operators and wait; raises ``AccountRefused`` when only an operator can fix the problem."""
    refused = refused_account(error) if isinstance(error, MatrixTrouble) else None
    if refused is not None:
        raise refused
    log.warning("matrix.disconnected", reason=str(error))
    await context.report(ConnectorState.DEGRADED, str(error))
    await asyncio.sleep(max(pause, error.after.total_seconds()) if isinstance(error, Busy) else pause)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each connection attempt; the first wait is 0."""
    return chain((0.0, 1.0, 2.0, 5.0, 15.0, 30.0), repeat(60.0))
