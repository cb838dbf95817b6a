"""One message after another into a chat, never more often than Telegram takes them."""

import asyncio
import time

MOST_PACED = 1_000


class Pace:
    """Lets messages through; a group takes fewer than a person."""

    def __init__(self, seconds: float, group_seconds: float) -> None:
        self._seconds = seconds
        self._group_seconds = group_seconds
        self._next: dict[str, float] = {}

    async def wait(self, channel: str) -> None:
        """Return when the chat takes another message."""
        now = time.monotonic()
        at = max(now, self._next.get(channel, 0.0))
        if len(self._next) >= MOST_PACED:
            self._next = {one: due for one, due in self._next.items() if due > now}
        self._next[channel] = at + (self._group_seconds if is_group(channel) else self._seconds)
        await asyncio.sleep(at - now)


def is_group(channel: str) -> bool:
    """Tell whether a chat is no person's: groups and channels have negative ids."""
    return channel.startswith("-")
