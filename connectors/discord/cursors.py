"""How far each channel has been taken in: Discord repeats nothing after a restart, so we keep it ourselves."""

import asyncio

import structlog

from connectors.base import ConnectorContext
from connectors.discord.receive import Place

WRITE_SECONDS = 1.0
"""How long a cursor may be behind what is in the inbox: after a crash the difference is read once more and known."""

log = structlog.get_logger(__name__)


class Cursors:
    """The newest message of each channel that needs no further look; kept in memory and written now and then."""

    def __init__(self, context: ConnectorContext) -> None:
        self._context = context
        self._known: dict[int, int] = {}
        self._unwritten: dict[int, Place] = {}
        self._found: dict[int, int] = {}
        """What was known of each channel when this connection first asked."""

    async def of(self, place: Place) -> int | None:
        """Return the id of the newest message that was taken in or passed over, None in a channel never seen."""
        if place.id not in self._known:
            mark = await self._context.cursor(place.channel, place.thread)
            if not mark:
                return None
            self._found.setdefault(place.id, self._known.setdefault(place.id, int(mark)))
        return self._known[place.id]

    async def before(self, place: Place) -> int | None:
        """Return the cursor that a channel had before this connection, however far it was read since; None for none."""
        await self.of(place)
        return self._found.get(place.id)

    async def begin_at(self, place: Place, number: int) -> None:
        """Keep that a channel is known from this message on; what was said before is not answered."""
        self._known[place.id] = max(number, self._known.get(place.id, 0))
        await self._context.remember_channel(place.channel, place.thread, direct=place.direct)
        await self._context.advance(place.channel, str(self._known[place.id]), place.thread)

    def note(self, place: Place, number: int) -> None:
        """Note that everything up to this message is taken in; it never goes back."""
        if number > self._known.get(place.id, 0):
            self._known[place.id] = number
            self._unwritten[place.id] = place

    async def keep_written(self) -> None:
        """Write what was noted, every second until cancelled."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self.write()
            # A store that is busy or broken now is tried again in a second (docs/invariants.md: no silent end).
            except Exception as error:  # noqa: BLE001 - see above
                log.warning("discord.cursors_not_written", error=type(error).__name__)

    async def write(self) -> None:
        """Write what was noted and is not written yet."""
        for number, place in tuple(self._unwritten.items()):
            mark = self._known[number]
            await self._context.advance(place.channel, str(mark), place.thread)
            if self._known[number] == mark:
                self._unwritten.pop(number, None)
