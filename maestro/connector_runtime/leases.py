"""The lease of a connector: only one process at a time uses a bot's token, and another may stand by to take over."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from connectors.base import Connector
from maestro.domain.errors import ConfigurationError
from maestro.installation.data_folder import FileLock

LOOK_SECONDS = 1.0


@contextlib.asynccontextmanager
async def lease(folder: Path, connector: Connector, report: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the connector's lease during the block; wait while another process has it.

    Held are its platform and account, whose queue only one process may poll, and its token, which two accounts might
    share by mistake: a platform would drop one of two gateways, or give every message to both.

    Raises ``ConfigurationError`` when the folder or a lock in it cannot be written.
    """
    with contextlib.ExitStack() as held:
        try:
            await _take_all(folder, connector, report, held)
        except OSError as error:
            raise ConfigurationError(
                f"The lease of {connector.platform}/{connector.account} in {folder} cannot be taken: {error.strerror}. "
                "See that this user may write there and that its disk is not full, or set dataDir to another folder."
            ) from error
        yield


async def _take_all(
    folder: Path, connector: Connector, report: Callable[[str], None], held: contextlib.ExitStack
) -> None:
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    for name in _names(connector):
        await _take(FileLock(folder / f"{name}.lock"), f"{connector.platform}/{connector.account}", report, held)


def _names(connector: Connector) -> list[str]:
    token = [f"token-{connector.token_digest}"] if connector.token_digest else []
    return [f"{connector.platform}-{connector.account}", *token]


async def _take(lock: FileLock, what: str, report: Callable[[str], None], held: contextlib.ExitStack) -> None:
    said = False
    # The lock is tried every second: a thread that blocks in flock could not be cancelled.
    while not await asyncio.to_thread(lock.take):
        if not said:
            report(f"{lock.holder().capitalize()} has the connector {what}; standing by to take over when it ends.")
            said = True
        await asyncio.sleep(LOOK_SECONDS)
    held.callback(lock.release)
    lock.sign()
    if said:
        report(f"The connector {what} is ours now.")
