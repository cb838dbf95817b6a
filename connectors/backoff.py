"""The rate of sends to a channel, and the pauses between attempts to connect."""

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat

MAX_CHANNELS = 1_000


class SendRateLimiter:
    """The rate limit of sends to each channel."""

    def __init__(self, seconds: Callable[[str], float]) -> None:
        """``seconds`` says how many lie between two messages to a channel."""
        self._seconds = seconds
        self._next: dict[str, float] = {}

    async def wait(self, channel: str) -> None:
        """Wait until the channel takes another message."""
        now = time.monotonic()
        at = max(now, self._next.get(channel, 0.0))
        if len(self._next) >= MAX_CHANNELS:
            self._next = {one: due for one, due in self._next.items() if due > now}
        self._next[channel] = at + self._seconds(channel)
        await asyncio.sleep(at - now)


def backoff_seconds() -> Iterator[float]:
    """Yield the pauses in seconds between attempts to connect: the first after a loss is made at once."""
    return chain((0.0, 1.0, 2.0, 5.0, 15.0, 30.0), repeat(60.0))
