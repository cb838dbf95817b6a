"""Runs each connector of a process for as long as the process holds the connector's lease."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors.base import AccountRefused, Connector
from connectors.hub import ConnectorHub
from connectors.web import WebConnector
from connectors.webhooks import PlatformWebhooks
from maestro.domain.errors import ConfigurationError
from maestro.installation.data_folder import FileLock
from maestro.settings import Settings
from maestro.store.store import Store
from maestro.supervision import end, first_of
from temporal.engine import Engine, WorkerParts

LOOK_SECONDS = 1.0


@contextlib.asynccontextmanager
async def lease(folder: Path, connector: Connector, report: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the connector's lease during the block; wait while another process has the lease.

    The lease locks the platform and account, as only one process may poll the queue, and the token, which two accounts
    might share by mistake: a platform would drop one of two connections, or give every message to both.

    Raises ``ConfigurationError`` when the folder or a lock in it cannot be written.
    """
    name = f"{connector.platform}/{connector.account}"
    locks = [f"{connector.platform}-{connector.account}.lock"]
    locks += [f"token-{connector.token_digest}.lock"] if connector.token_digest else []
    with contextlib.ExitStack() as held:
        try:
            await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
            for lock in locks:
                await _acquire(FileLock(folder / lock), name, report, held)
        except OSError as error:
            raise ConfigurationError(
                f"The lease of {name} in {folder} cannot be taken: {error.strerror}. "
                "Make the folder writable for this user, free space on its disk, or set dataDir to another folder."
            ) from error
        yield


async def _acquire(lock: FileLock, name: str, report: Callable[[str], None], held: contextlib.ExitStack) -> None:
    has_waited = False
    # The lock is tried every second: a thread that blocks in flock could not be cancelled.
    while not await asyncio.to_thread(lock.take):
        if not has_waited:
            report(f"{lock.holder().capitalize()} runs the connector {name}; this process takes over after it.")
            has_waited = True
        await asyncio.sleep(LOOK_SECONDS)
    held.callback(lock.release)
    lock.sign()
    if has_waited:
        report(f"This process has taken over the connector {name}.")


@dataclass(frozen=True)
class ConnectorHost:
    """Runs connectors: next to an embedded Temporal server without leases, else each with a lease and a queue."""

    settings: Settings
    hub: ConnectorHub
    engine: Engine
    say: Callable[[str], None]
    parts_of: Callable[[Connector], WorkerParts]
    """Returns the worker of one connector's queue."""

    async def run(self, connector: Connector, begun: Callable[[], None]) -> None:
        """Run the connector until cancelled, once its lease is held; ``begun`` is called when it accepts sends."""
        if self.settings.temporal.embedded:
            begun()
            with self.hub.running(connector):
                await connector.run()
            return
        async with lease(self.settings.data_dir / "leases", connector, self.say), asyncio.TaskGroup() as group:
            with self.hub.running(connector):
                group.create_task(self.engine.work(self.parts_of(connector), begun))
                await connector.run()

    async def run_bot(self, connector: Connector) -> None:
        """Run a bot until cancelled, once its lease is held, which protects a token that two rows share by mistake.

        Raises ``AccountRefused`` when the platform refuses the account.
        """
        loop = asyncio.get_running_loop()
        refused: asyncio.Future[str] = loop.create_future()
        async with lease(self.settings.data_dir / "leases", connector, self.say):

            def record_refusal(reason: str) -> None:
                """Record the reason of the first refusal; may be called from any thread."""
                loop.call_soon_threadsafe(lambda: None if refused.done() else refused.set_result(reason))

            with self.hub.running(connector, record_refusal):
                tasks = [asyncio.create_task(connector.run())]
                try:
                    if not self.settings.temporal.embedded:
                        # Bots are added at run time, so the start of the process does not wait for the bots' workers.
                        tasks.append(asyncio.create_task(self.engine.work(self.parts_of(connector), lambda: None)))
                    await first_of(refused, watched=tasks)
                finally:
                    await end(tasks)
        if not refused.cancelled():
            raise AccountRefused(refused.result())


def webhooks_of(connectors: Sequence[Connector]) -> PlatformWebhooks | None:
    """Return the routes for platforms' webhooks on the web connector's port; None without the web connector."""
    return next((connector.webhooks for connector in connectors if isinstance(connector, WebConnector)), None)


async def wait_for_ports(connectors: Sequence[Connector]) -> None:
    """Return once the ports of all connectors are open; raises the error of a port that cannot be opened."""
    for connector in connectors:
        if isinstance(connector, WebConnector):
            await connector.started()


def describe_closed_ports(connectors: Sequence[Connector]) -> str:
    """Return a sentence about connectors with a port that is not open yet; "" when all ports are open."""
    is_waiting = any(
        isinstance(connector, WebConnector) and not connector.accepts_connections for connector in connectors
    )
    return f"not listening yet: {WebConnector.platform}" if is_waiting else ""


def stop_accepting(connectors: Sequence[Connector]) -> None:
    """Refuse new messages at the connectors' ports; answers under way are still sent."""
    for connector in connectors:
        if isinstance(connector, WebConnector):
            connector.stop_accepting()


def is_job_open(store: Store, job_id: str) -> bool:
    """Tell whether a job has not ended yet, so that its typing indicator is still shown."""
    with store.view() as tx:
        return not tx.jobs.status(job_id).ended
