"""What has to succeed is tried until it does: operators hear of the trouble, and each pause is longer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from connectors.backoff import backoff_seconds
from connectors.telegram.api import TelegramBusy, refused_account
from maestro.domain.errors import MaestroError

T = TypeVar("T")


class ConnectionWatcher(Protocol):
    """Who is told how the connection is doing."""

    async def well(self) -> None:
        """Hear that messages come in."""
        ...

    async def broken(self, why: str) -> None:
        """Hear that none do."""
        ...


async def retry_until_done(work: Callable[[], Awaitable[T]], watcher: ConnectionWatcher) -> T:
    """Do something until it succeeds; raises ``AccountRefused`` when only an operator can help.

    What the store refuses, because it is full or busy, is tried again like what Telegram refuses.
    """
    waits = backoff_seconds()
    while True:
        try:
            return await work()
        except MaestroError as error:
            refused = refused_account(error)
            if refused is not None:
                raise refused from None
            await watcher.broken(str(error))
            pause = next(waits)
            await asyncio.sleep(max(pause, error.after.total_seconds()) if isinstance(error, TelegramBusy) else pause)
