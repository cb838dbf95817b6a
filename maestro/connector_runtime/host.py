"""Runs each connector of a process while the process holds the connector's lease."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from connectors.base import AccountRefused, Connector
from connectors.hub import ConnectorHub
from connectors.web import WebConnector
from connectors.webhooks import PlatformWebhooks
from maestro.domain.errors import ConfigurationError
from maestro.installation.data_folder import FileLock
from maestro.settings import Settings
from maestro.store.store import Store
from maestro.supervision import Service, end, first_of
from temporal.engine import Engine
from temporal.worker import WorkerParts

LOOK_SECONDS = 1.0


@contextlib.asynccontextmanager
async def lease(folder: Path, connector: Connector, report: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the connector's lease during the block; wait while another process has it.

    The lease locks the platform and account, whose queue only one process may poll, and the token, which two accounts
    might share by mistake: a platform would drop one of two gateways, or give every message to both.

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


@dataclass(frozen=True)
class ConnectorHost:
    """Runs connectors: without leases next to an embedded server, with a lease and a queue for each on a cluster."""

    settings: Settings
    hub: ConnectorHub
    engine: Engine
    say: Callable[[str], None]
    parts_of: Callable[[Connector], WorkerParts]
    """The worker of the queue of one connector."""

    async def run(self, connector: Connector, begun: Callable[[], None]) -> None:
        """Run the connector until cancelled, once its lease is held; ``begun`` is called when it accepts sends."""
        if self.settings.temporal.embedded:
            begun()
            with self.hub.running(connector):
                await connector.run()
        else:
            await self._run_on_cluster(connector, begun)

    async def run_bot(self, connector: Connector) -> None:
        """Run a bot until cancelled, once its token's lease is held, because two rows may share a token by mistake.

        Raises ``AccountRefused`` when the platform refuses the account.
        """
        loop = asyncio.get_running_loop()
        refused: asyncio.Future[str] = loop.create_future()
        async with lease(self.settings.data_dir / "leases", connector, self.say):
            with self.hub.running(connector, partial(_settle, loop, refused)):
                tasks = [asyncio.create_task(service) for service in self._work_of(connector)]
                try:
                    await first_of(refused, watched=tasks)
                finally:
                    await end(tasks)
        if not refused.cancelled():
            raise AccountRefused(refused.result())

    def _work_of(self, connector: Connector) -> list[Service]:
        if self.settings.temporal.embedded:
            return [connector.run()]
        return [connector.run(), self.engine.work(self.parts_of(connector), _ignore_start)]

    async def _run_on_cluster(self, connector: Connector, begun: Callable[[], None]) -> None:
        async with lease(self.settings.data_dir / "leases", connector, self.say), asyncio.TaskGroup() as group:
            with self.hub.running(connector):
                working = self.engine.work(self.parts_of(connector), begun)
                group.create_task(working)
                await connector.run()


def _settle(loop: asyncio.AbstractEventLoop, refused: "asyncio.Future[str]", reason: str) -> None:
    """Record from any thread why a platform refuses an account; only the first reason is recorded."""
    loop.call_soon_threadsafe(lambda: None if refused.done() else refused.set_result(reason))


def _ignore_start() -> None:
    """Do nothing: bots are added at run time, so the start of the process does not wait for their workers."""


def webhooks_of(connectors: Sequence[Connector]) -> PlatformWebhooks | None:
    """Return the endpoint for platform webhooks; None without the web connector."""
    return next((connector.webhooks for connector in connectors if isinstance(connector, WebConnector)), None)


async def wait_for_ports(connectors: Sequence[Connector]) -> None:
    """Return once the connectors with a port receive messages; raises the error of one that cannot."""
    for connector in connectors:
        if isinstance(connector, WebConnector):
            await connector.started()


def describe_closed_ports(connectors: Sequence[Connector]) -> str:
    """Return a sentence that names the connectors whose port is not open yet; empty when all ports are open."""
    waiting = [one.platform for one in connectors if isinstance(one, WebConnector) and not one.accepts_connections]
    return f"not listening yet: {', '.join(waiting)}" if waiting else ""


def stop_accepting(connectors: Sequence[Connector]) -> None:
    """Stop receiving messages; answers that are under way are still sent."""
    for connector in connectors:
        if isinstance(connector, WebConnector):
            connector.stop_accepting()


def is_job_open(store: Store, job_id: str) -> bool:
    """Return whether a job has not ended yet, so that its typing indicator stays on."""
    with store.view() as tx:
        return not tx.jobs.status(job_id).ended
