"""One line of events per channel: each is taken in after the one before, whatever happens to its channel's history.

discord.py runs a handler per event as a task of its own: those start in order and end in any. So a handler only puts
its event on the line, and one worker per channel takes it in.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import chain, repeat

import structlog

from connectors.discord.receive import Place

MOST_WAITING = 200
"""Events of a channel that wait in memory; more are left to Discord, and its history is read instead."""
PAUSES = (1.0, 5.0, 15.0, 60.0)
"""Seconds between two tries to take in what could not be taken in."""

log = structlog.get_logger(__name__)

Work = Callable[[], Awaitable[None]]


@dataclass
class Line:
    """What waits of one channel; one that is ``behind`` first has its history read.

    ``newest`` is the last message that the history has, None where nobody said.
    """

    place: Place
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


async def insist(work: Callable[[], Awaitable[object]]) -> None:
    """Do something until it succeeds."""
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            await work()
        # What a broken store prevents now is done when it works again (docs/invariants.md: no silent end).
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("discord.later", error=type(error).__name__, seconds=pause)
            await asyncio.sleep(pause)
        else:
            return


class Lines:
    """All lines of a connection; ``read`` takes in what a channel has after its cursor."""

    def __init__(self, read: Callable[[Place, int | None], Awaitable[None]]) -> None:
        self._read = read
        self._lines: dict[int, Line] = {}
        self._settled: set[int] = set()
        """Channels whose next event follows what is taken in already."""
        self._session = 0

    def doubt(self) -> None:
        """Begin a new session: each channel may have a gap before its next event, whatever was known of it."""
        self._settled.clear()
        self._session += 1
        for line in self._lines.values():
            line.newest = None

    def put(self, place: Place, work: Work) -> None:
        """Let an event wait its turn; in a channel that may have a gap the history comes first."""
        line = self._line(place)
        if place.id not in self._settled:
            line.fall_behind()
        if len(line.waiting) < MOST_WAITING:
            line.waiting.append(work)
        else:
            line.waiting.clear()
            line.fall_behind()
        self._work_on(line)

    def catch_up(self, place: Place, newest: int | None = None) -> "asyncio.Task[None]":
        """Read the channel's history before anything else of it is taken in; the task ends when nothing waits."""
        line = self._line(place)
        line.fall_behind(newest)
        return self._work_on(line)

    async def close(self) -> None:
        """Stop; what still waits is read from the history by the next connection."""
        workers = [line.worker for line in self._lines.values() if line.worker is not None]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _line(self, place: Place) -> Line:
        return self._lines.setdefault(place.id, Line(place))

    def _work_on(self, line: Line) -> "asyncio.Task[None]":
        if line.worker is None:
            line.worker = asyncio.create_task(self._work(line))
        return line.worker

    async def _work(self, line: Line) -> None:
        try:
            while line.behind or line.waiting:
                await self._next(line)
        finally:
            del self._lines[line.place.id]

    async def _next(self, line: Line) -> None:
        try:
            if line.behind:
                await self._catch_up(line)
            else:
                await line.waiting.popleft()()
            line.failures = 0
        # What a full inbox or a broken store refuses now is read again (docs/invariants.md: no silent end).
        except Exception as error:  # noqa: BLE001 - see above
            line.fall_behind()
            pause = PAUSES[min(line.failures, len(PAUSES) - 1)]
            line.failures += 1
            log.warning("discord.later", channel=line.place.id, error=type(error).__name__, seconds=pause)
            await asyncio.sleep(pause)

    async def _catch_up(self, line: Line) -> None:
        """Read the history; when another session began meanwhile, there may be another gap."""
        session, newest = self._session, line.newest
        line.behind = False
        await self._read(line.place, newest)
        if session == self._session:
            self._settled.add(line.place.id)
