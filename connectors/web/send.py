"""The way out: one bounded, ordered line per socket, and the hub that knows which sockets listen to a channel."""

import asyncio
import json
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from connectors.web.errors import TooSlow
from connectors.web.frames import Fields, delivery
from maestro.domain.messages import OutgoingMessage

RECENT_MESSAGES = 128
RECENT_SECONDS = 30.0


class Line:
    """One socket's outgoing frames, in order; a delivery is put on it once, told by its id.

    Until ``catch_up`` deliveries are held back, so that what was missed goes first. More than ``limit`` waiting frames
    mean that the client does not read: ``drain`` then ends and the socket is closed, to resume later.
    """

    def __init__(self, limit: int, cursor: int) -> None:
        self.cursor = cursor
        self._limit = limit
        self._frames: deque[str] = deque()
        self._held: list[OutgoingMessage] | None = []
        self._more = asyncio.Event()
        self._full = asyncio.Event()
        self._written = asyncio.Event()

    def say(self, frame: Fields) -> None:
        """Put an answer of the server on the line."""
        if len(self._frames) >= self._limit:
            self._full.set()
            return
        self._append(frame)

    def hint(self, frame: Fields) -> None:
        """Say something nobody misses; dropped while others wait."""
        if not self._frames and self._held is None:
            self.say(frame)

    def push(self, message: OutgoingMessage) -> None:
        """Put a live delivery on the line, unless this socket has it."""
        if self._held is not None:
            self._hold(message)
        elif message.id > self.cursor:
            self.cursor = message.id
            self.say(delivery(message))

    async def replay(self, page: Iterable[OutgoingMessage]) -> None:
        """Put a page of what was missed on the line, oldest first, and return when it is written.

        Live deliveries stay held back; those that were in the page are not held any longer.
        """
        for message in page:
            if message.id > self.cursor:
                self.cursor = message.id
                self._append(delivery(message))
        self._held = [message for message in self._held or () if message.id > self.cursor]
        await self._written.wait()

    def catch_up(self, missed: Iterable[OutgoingMessage]) -> None:
        """Put the rest of what was missed on the line, oldest first, then let live deliveries through.

        It runs in one go, and the socket was in the hub before ``missed`` was read: hence no gap and no double.
        """
        waiting = {message.id: message for message in (*missed, *(self._held or ()))}
        self._held = None
        self._limit += len(waiting)  # a long absence is not a slow reader
        for _, message in sorted(waiting.items()):
            self.push(message)

    async def drain(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Write the frames until cancelled; one task per socket runs this."""
        while True:
            await self._more.wait()
            while self._frames:
                await send(self._frames.popleft())
            self._more.clear()
            self._written.set()

    async def until_full(self) -> None:
        """Wait until the client has fallen too far behind; raises ``TooSlow``."""
        await self._full.wait()
        raise TooSlow

    def _append(self, frame: Fields) -> None:
        self._frames.append(_encode(frame))
        self._more.set()
        self._written.clear()

    def _hold(self, message: OutgoingMessage) -> None:
        assert self._held is not None
        if len(self._held) >= self._limit:
            self._full.set()
            return
        self._held.append(message)


class Hub:
    """Which sockets listen to which channel.

    It also remembers the last deliveries for a moment: between handing a chunk over and its row saying so, a client
    that resumes would find it neither in the store nor on its line.
    """

    def __init__(self) -> None:
        self._lines: defaultdict[str, list[Line]] = defaultdict(list)
        self._recent: deque[tuple[float, OutgoingMessage]] = deque(maxlen=RECENT_MESSAGES)

    @property
    def clients(self) -> int:
        """How many sockets are authenticated."""
        return sum(len(lines) for lines in self._lines.values())

    @contextmanager
    def listening(self, channel: str, line: Line) -> Iterator[None]:
        """Let the line have everything sent to the channel from now on, until its socket is gone."""
        self._lines[channel].append(line)
        try:
            yield
        finally:
            self._lines[channel].remove(line)
            if not self._lines[channel]:
                del self._lines[channel]

    def push(self, message: OutgoingMessage) -> None:
        """Hand a delivery to every socket of its channel."""
        self._recent.append((time.monotonic(), message))
        for line in self._lines.get(message.address.channel, ()):
            line.push(message)

    def typing(self, channel: str) -> None:
        """Show every socket of the channel that an answer is being written."""
        for line in self._lines.get(channel, ()):
            line.hint({"type": "typing", "channelId": channel})

    def recent(self, channel: str, after_id: int) -> Sequence[OutgoingMessage]:
        """Return what went to the channel in the last moments."""
        oldest = time.monotonic() - RECENT_SECONDS
        return [
            message
            for at, message in self._recent
            if at >= oldest and message.address.channel == channel and message.id > after_id
        ]


def _encode(frame: Fields) -> str:
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
