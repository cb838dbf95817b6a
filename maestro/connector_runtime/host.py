"""The context of a connector, backed by the store, and connectors under their leases (docs/architecture.md)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ulid import ULID

from connectors.base import Connector, ConnectorState, Identity, IdentityRole, KnownChannel, Upload
from connectors.failures import AccountRefused
from connectors.hub import ConnectorHub
from connectors.web import WebConnector
from maestro.domain.errors import ConfigurationError, InvalidMessage, NotFound
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt, ReceiptReport
from maestro.domain.people.people import UploadedFile
from maestro.installation.data_folder import FileLock
from maestro.intake import AccountIntake, Intake
from maestro.settings import Settings
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.supervision import cancel_tasks, wait_for_first
from temporal.engine import Engine, WorkerParts

Result = TypeVar("Result")

LOOK_SECONDS = 1.0


class StoreContext(AccountIntake):
    """A ``ConnectorContext`` backed by the store; every method runs its transaction in a thread."""

    def __init__(self, bot: tuple[str, str], intake: Intake, store: Store, files: MediaFolder) -> None:
        """``bot`` is the connector's platform and account."""
        super().__init__(intake)
        self._platform, self._account = bot
        self._store = store
        self._files = files

    async def cursor(self, channel: str, thread: str = "") -> str | None:
        return await self._read(lambda tx: tx.bots.channels.read_cursor(self._channel_address(channel, thread)))

    async def advance(self, channel: str, mark: str, thread: str = "") -> None:
        await self._change(lambda tx: tx.bots.channels.advance_cursor(self._channel_address(channel, thread), mark))

    async def remember_channel(self, channel: str, thread: str = "", *, direct: bool = False) -> None:
        await self._change(
            lambda tx: tx.bots.channels.record_activity(self._channel_address(channel, thread), direct=direct)
        )

    async def known_channels(self) -> Sequence[KnownChannel]:
        return await self._read(
            lambda tx: [
                KnownChannel(row.channel, row.thread, row.mark, row.direct, row.seen_at)
                for row in tx.bots.channels.list_known_channels(self._platform, self._account)
            ]
        )

    async def skipped(self, channel: str, count: int, why: str) -> None:
        await self._change(lambda tx: tx.inbox.ignored.add_ignored(self._channel_address(channel), why, count))

    async def sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[OutgoingMessage]:
        rows = await self._read(lambda tx: tx.deliveries.list_sent_since(address, after_id, limit))
        path = self._files.path_of_digest
        return [row.build_outgoing(has_more=more, path=path(row.digest) if row.digest else None) for row, more in rows]

    async def newest_delivery(self) -> int:
        return await self._read(lambda tx: tx.deliveries.find_newest_id())

    async def last_heard(self, channel: str) -> datetime | None:
        return await self._read(lambda tx: tx.bots.channels.read_last_activity(self._channel_address(channel)))

    async def record_report(self, key: str, report: ReceiptReport) -> bool:
        return await self._change(lambda tx: tx.deliveries.reports.apply_report(self._channel_address(""), key, report))

    async def receipt(self, key: str) -> Receipt | None:
        return await self._read(lambda tx: tx.deliveries.reports.find_receipt(self._channel_address(""), key))

    async def pressed(self, key: str, number: int) -> str | None:
        return await self._read(
            lambda tx: tx.deliveries.reports.find_button_value(self._channel_address(""), key, number)
        )

    async def moved(self, channel: str, to: str) -> None:
        await self._change(lambda tx: tx.bots.moves.move_channel(self._channel_address(channel), to))

    async def moved_to(self, channel: str) -> str:
        return await self._read(lambda tx: tx.bots.channels.find_new_id(self._channel_address(channel)))

    async def open_channel(self, address: Address, user_id: str) -> bool:
        return await self._change(lambda tx: tx.users.claim_channel(address, user_id))

    async def redeem(self, ticket: str) -> Identity | None:
        row = await self._change(lambda tx: tx.users.take_ticket(ticket))
        return Identity(row.user_id, row.user_name, IdentityRole(row.role)) if row else None

    async def keep_upload(self, user_id: str, upload: Upload) -> Attachment:
        digest = await asyncio.to_thread(self._files.move_in, upload.path)

        def add(tx: Transaction) -> Attachment:
            record = UploadedFile(
                id=f"upload-{ULID()}",
                user_id=user_id,
                digest=digest,
                filename=upload.filename,
                content_type=upload.content_type,
                size=upload.size,
                created_at=tx.now,
            )
            tx.users.add_upload(record)
            return Attachment.model_validate(record, from_attributes=True)

        return await self._change(add)

    async def uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        stored = await self._read(lambda tx: tx.users.list_uploads(ids))
        for upload_id in ids:
            if upload_id not in stored or stored[upload_id].user_id != user_id:
                raise InvalidMessage(f"attachment {upload_id} is not one of your uploads; send it to /api/upload first")
        return tuple(Attachment.model_validate(stored[upload_id], from_attributes=True) for upload_id in ids)

    async def upload_file(self, attachment_id: str) -> Path:
        stored = await self._read(lambda tx: tx.users.list_uploads([attachment_id]))
        if attachment_id not in stored:
            raise NotFound(f"there is no upload {attachment_id}")
        return self._files.path_of_digest(stored[attachment_id].digest)

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        trouble = state in (ConnectorState.DEGRADED, ConnectorState.FAILED)
        account = (self._platform, self._account)
        await self._change(lambda tx: tx.users.record_connector_state(*account, state, detail, trouble=trouble))

    def _channel_address(self, channel: str, thread: str = "") -> Address:
        return Address(platform=self._platform, account=self._account, channel=channel, thread=thread)

    async def _read(self, read: Callable[[Transaction], Result]) -> Result:
        return await asyncio.to_thread(_run_in, self._store.view, read)

    async def _change(self, change: Callable[[Transaction], Result]) -> Result:
        return await asyncio.to_thread(_run_in, self._store.begin, change)


def _run_in(
    transaction: Callable[[], contextlib.AbstractContextManager[Transaction]], work: Callable[[Transaction], Result]
) -> Result:
    with transaction() as tx:
        return work(tx)


@contextlib.asynccontextmanager
async def hold_lease(folder: Path, connector: Connector, report: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the connector's lease (lock) during the block; wait while another process has the lease.

    One lock is for the platform and account, because only one process may poll the queue. A second lock is for the
    token, which two accounts might share: the platform would drop one connection, or send every message to both.

    Raises ``ConfigurationError`` when the folder or a lock in it cannot be written.
    """
    name = f"{connector.platform}/{connector.account}"
    locks = [f"{connector.platform}-{connector.account}.lock"]
    locks += [f"token-{connector.token_digest}.lock"] if connector.token_digest else []
    with contextlib.ExitStack() as held:
        try:
            await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
            for lock in locks:
                await acquire_lock(FileLock(folder / lock), name, report, held)
        except OSError as error:
            raise ConfigurationError(
                f"The lease of {name} in {folder} cannot be taken: {error.strerror}. "
                "Make the folder writable for this user, free space on its disk, or set dataDir to another folder."
            ) from error
        yield


async def acquire_lock(lock: FileLock, name: str, report: Callable[[str], None], held: contextlib.ExitStack) -> None:
    has_waited = False
    # The lock is tried every second: a thread that blocks in flock could not be cancelled.
    while not await asyncio.to_thread(lock.take_lock):
        if not has_waited:
            report(
                f"{lock.describe_holder().capitalize()} runs the connector {name}; this process takes over after it."
            )
            has_waited = True
        await asyncio.sleep(LOOK_SECONDS)
    held.callback(lock.release_lock)
    lock.write_process_id()
    if has_waited:
        report(f"This process has taken over the connector {name}.")


@dataclass(frozen=True)
class ConnectorHost:
    """The runner of connectors, each with a lease (lock) and a worker for its queue unless Temporal is embedded."""

    settings: Settings
    hub: ConnectorHub
    engine: Engine
    say: Callable[[str], None]
    parts_of: Callable[[Connector], WorkerParts]
    """Returns the worker of one connector's queue."""

    async def run_with_lease(self, connector: Connector, on_begin: Callable[[], None]) -> None:
        """Run the connector until cancelled, once its lease is held; ``on_begin`` is called when it accepts sends."""
        if self.settings.temporal.embedded:
            on_begin()
            with self.hub.register_while_running(connector):
                await connector.run()
            return
        async with hold_lease(self.settings.data_dir / "leases", connector, self.say), asyncio.TaskGroup() as group:
            with self.hub.register_while_running(connector):
                group.create_task(self.engine.run_worker(self.parts_of(connector), on_begin))
                await connector.run()

    async def run_bot(self, connector: Connector) -> None:
        """Run a bot until cancelled, under its lease, which protects a token that two bots share by mistake.

        Raises ``AccountRefused`` when the platform refuses the account.
        """
        loop = asyncio.get_running_loop()
        refused: asyncio.Future[str] = loop.create_future()
        async with hold_lease(self.settings.data_dir / "leases", connector, self.say):

            def record_refusal(reason: str) -> None:
                """Record the reason of the first refusal; may be called from any thread."""
                loop.call_soon_threadsafe(lambda: None if refused.done() else refused.set_result(reason))

            with self.hub.register_while_running(connector, record_refusal):
                tasks = [asyncio.create_task(connector.run())]
                try:
                    if not self.settings.temporal.embedded:
                        # Bots are added at run time, so the start of the process does not wait for the bots' workers.
                        tasks.append(
                            asyncio.create_task(self.engine.run_worker(self.parts_of(connector), lambda: None))
                        )
                    await wait_for_first(refused, watched=tasks)
                finally:
                    await cancel_tasks(tasks)
        if not refused.cancelled():
            raise AccountRefused(refused.result())


def describe_closed_ports(connectors: Sequence[WebConnector]) -> str:
    """Return a sentence about connectors with a port that is not open yet; "" when all ports are open."""
    is_waiting = any(not connector.accepts_connections for connector in connectors)
    return f"not listening yet: {WebConnector.platform}" if is_waiting else ""


def is_job_open(store: Store, job_id: str) -> bool:
    """Tell whether a job has not ended yet, so that its typing indicator is still shown."""
    with store.view() as tx:
        return not tx.jobs.read_status(job_id).ended
