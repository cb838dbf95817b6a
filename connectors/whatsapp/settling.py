"""What settles a message whose connection broke: WhatsApp cannot be asked, but it tells by itself, under our key."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from connectors.base import ConnectorContext
from connectors.outcomes import NotDispatched, Unsettled
from maestro.domain.messages import OutgoingMessage, Receipt

LOOK_SECONDS = 0.5


class Settling:
    """Waits for a status of a message."""

    def __init__(self, context: ConnectorContext, seconds: float, clock: Callable[[], datetime]) -> None:
        self._context = context
        self._seconds = timedelta(seconds=seconds)
        self._clock = clock
        self._since: datetime | None = None

    def listen(self) -> None:
        """Listen from now on: what was told while nobody listened comes again."""
        self._since = self._clock()

    async def find(self, message: OutgoingMessage) -> Receipt:
        """Return what WhatsApp has the message as; raises ``Unsettled`` when it says nothing in time.

        Before we listen it can say nothing: then it cannot be asked now.
        """
        while True:
            receipt = await self._context.receipt(message.key)
            if receipt is not None:
                return receipt
            if self._since is None:
                raise NotDispatched("WhatsApp has not let us in yet, so it cannot say what became of the message")
            until = max(message.tried_at or self._since, self._since) + self._seconds
            left = (until - self._clock()).total_seconds()
            if left <= 0:
                raise Unsettled(f"WhatsApp said nothing of the message for {self._seconds.total_seconds():g} s")
            await asyncio.sleep(min(left, LOOK_SECONDS))
