"""Asks the homeserver again and again what happened, and keeps up to where once all of that is in the inbox."""

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
"""How long the homeserver is to wait for something to happen before it says that nothing did."""
UNKNOWN_PLACE = frozenset({"M_INVALID_PARAM", "M_UNKNOWN", "M_UNKNOWN_POS"})
"""What a homeserver says that does not know any more up to where it told us."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Caps:
    """How much is taken in of what was missed: so many messages of a room, none of them older."""

    messages: int
    oldest: datetime


class Sync:
    """Listens for one account.

    The homeserver's word for "up to here" means nothing to us, and is for all rooms at once. It is kept as the mark of
    a channel that is called like our account, so that another account in its place begins anew.
    """

    def __init__(
        self, server: Homeserver, context: ConnectorContext, inbound: Inbound, rooms: Rooms, options: MatrixOptions
    ) -> None:
        self._server, self._context, self._inbound = server, context, inbound
        self._rooms, self._options = rooms, options

    async def run(self, us: Us) -> None:
        """Listen until cancelled; raises ``AccountRefused``, and what the store raises that is not only busy."""
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
        """Take in what happened since the last time; all of it comes again when something of it fails."""
        mark = await self._context.cursor(us.user_id) or ""
        since = place(mark)
        try:
            told = await self._server.sync(since, 0 if missed or not since else LISTEN_SECONDS)
        except Refused as refused:
            if not since or refused.code not in UNKNOWN_PLACE:
                raise
            await self._context.skipped(us.user_id, 0, "the homeserver does not know any more up to where it told us")
            since, told = "", await self._server.sync("", 0)
        rooms = told.get("rooms") or {}
        if since:  # what was said before the first time is not for us
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
            end = "" if came(told, us) else since  # of a room that we were only invited to, nothing was told before
            before, more = await self._between(room, str(timeline.get("prev_batch") or ""), end, us, caps)
            events, missed = [*before, *events], True
        if missed:
            events, skipped, why = within(events, caps, us, more=more)
            if why:
                await self._context.skipped(room, skipped, why)
        await self._inbound.take(room, events, us)

    async def _between(self, room: str, start: str, end: str, us: Us, caps: Caps) -> tuple[Sequence[Event], bool]:
        """Return what a room has before the part that was told, oldest first, and whether there is more of it."""
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
    """Return what is taken in of what was missed, how many messages are not, 0 for nobody knows, and why."""
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
    """Return the homeserver's word for up to where it told us, "" for the beginning."""
    return mark.partition(" ")[2].rstrip()


def following(mark: str, word: str) -> str:
    """Return the mark that comes after another one.

    Of two marks the longer one is the later, then the one that sorts later: it begins with a number that grows, and is
    never shorter than the one before.
    """
    number = int(mark.partition(" ")[0] or 0) + 1
    return f"{number:016d} {word}".ljust(len(mark))


async def wait(context: ConnectorContext, error: Exception, pause: float) -> None:
    """Say that it does not work now, and wait; raises ``AccountRefused`` where waiting does not help."""
    refused = refused_account(error) if isinstance(error, MatrixTrouble) else None
    if refused is not None:
        raise refused
    log.warning("matrix.disconnected", reason=str(error))
    await context.report(ConnectorState.DEGRADED, str(error))
    await asyncio.sleep(max(pause, error.after.total_seconds()) if isinstance(error, Busy) else pause)


def pauses() -> Iterator[float]:
    """Yield how many seconds to wait before each attempt: the first one after a loss is made at once."""
    return chain((0.0, 1.0, 2.0, 5.0, 15.0, 30.0), repeat(60.0))
