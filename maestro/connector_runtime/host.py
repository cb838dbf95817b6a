"""The context of a connector, backed by the store, and connectors under their leases (docs/architecture.md)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import structlog
from ulid import ULID

from connectors.base import Connector, ConnectorState, Identity, IdentityRole, KnownChannel, Upload
from connectors.failures import AccountRefused
from connectors.hub import ConnectorHub
from connectors.web import WebConnector
from maestro.domain.cluster import Lease, Leases
from maestro.domain.errors import ConfigurationError, InvalidMessage, LeaseLost, NotFound, StoreBusy
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt, ReceiptReport
from maestro.domain.people.people import UploadedFile
from maestro.intake import AccountIntake, Intake
from maestro.settings import Settings
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.supervision import cancel_tasks, finish_despite_cancellation, wait_for_first
from temporal.engine import Engine, WorkerParts

Result = TypeVar("Result")
Receive = Callable[[Connector], Coroutine[Any, Any, None]]
"""Runs a connector until cancelled."""

LOOK_SECONDS = 1.0

log = structlog.get_logger(__name__)


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
        return [
            row.build_outgoing(has_more=more, path=path(row.digest) if row.digest else None, size=size)
            for row, more, size in rows
        ]

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
        return await asyncio.to_thread(self._files.fetch, stored[attachment_id].digest)

    async def fetch_file(self, message: OutgoingMessage) -> Path:
        if message.path is None:
            raise NotFound(f"the message {message.id} has no stored file")
        return await asyncio.to_thread(self._files.fetch, message.path.name)

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
async def hold_lease(leases: Leases, connector: Connector, report: Callable[[str], None]) -> AsyncIterator[Lease]:
    """Hold the connector's lease during the block; wait while another process has the lease.

    One lease is for the platform and account, because only one process may poll the queue. A second one is for the
    token, which two accounts might share: the platform would drop one connection, or send every message to both. The
    yielded lease is the first; where both can be lost, they are lost together.

    Raises ``ConfigurationError`` when a lease is a file that cannot be written.
    """
    name = f"{connector.platform}/{connector.account}"
    needed = [leases.lease(f"{connector.platform}-{connector.account}")]
    needed += [leases.lease(f"token-{connector.token_digest}")] if connector.token_digest else []
    async with contextlib.AsyncExitStack() as held:
        try:
            for lease in needed:
                held.push_async_callback(_release_lease, lease)
                await take_lease(lease, name, report)
        except OSError as error:
            raise ConfigurationError(
                f"The lease of {name} ({needed[0].name}.lock in the folder leases) cannot be taken: {error.strerror}. "
                "Make the folder writable for this user, free space on its disk, or set dataDir to another folder."
            ) from error
        yield needed[0]


async def take_lease(lease: Lease, name: str, report: Callable[[str], None]) -> None:
    """Take a lease once no other process holds it; while the store does not answer, wait as well."""
    has_waited = False
    # The lease is tried every second: a thread that blocks in a lock could not be cancelled.
    # A thread that takes the lease just when its caller is cancelled is awaited, so that the lease can be released.
    while not await finish_despite_cancellation(asyncio.to_thread(_try_lease, lease)):
        if not has_waited:
            holder = await asyncio.to_thread(lease.describe_holder)
            report(f"{holder[:1].upper()}{holder[1:]} runs the connector {name}; this process takes over after it.")
            has_waited = True
        await asyncio.sleep(LOOK_SECONDS)
    if has_waited:
        report(f"This process has taken over the connector {name}.")


def _try_lease(lease: Lease) -> bool:
    try:
        return lease.take()
    except StoreBusy as error:
        log.warning("lease.postponed", lease=lease.name, reason=str(error))
        return False


async def _release_lease(lease: Lease) -> None:
    """Release a lease in a thread, because a server that does not answer would hold up the event loop."""
    await finish_despite_cancellation(asyncio.to_thread(lease.release))


async def wait_for_loss(lease: Lease) -> None:
    """Return when this process may no longer hold the lease."""
    while lease.is_held:  # noqa: ASYNC110 - the lease runs out by a clock, and no one reports that
        await asyncio.sleep(LOOK_SECONDS)


@dataclass(frozen=True)
class ConnectorHost:
    """The runner of connectors, each with a lease (lock) and a worker for its queue unless Temporal is embedded."""

    settings: Settings
    leases: Leases
    fences: MutableMapping[tuple[str, str], Lease]
    """The leases that the store checks before a message is marked as being sent."""
    hub: ConnectorHub
    engine: Engine
    say: Callable[[str], None]
    parts_of: Callable[[Connector], WorkerParts]
    """Returns the worker of one connector's queue."""

    async def run_with_lease(self, connector: Connector, on_begin: Callable[[], None]) -> None:
        """Run the connector until cancelled, while its lease is held; ``on_begin`` is called when it accepts sends.

        After the loss of the lease the connector is stopped, and runs again when this process gets the lease back.
        """
        if self.settings.temporal.embedded:
            on_begin()
            with self.hub.register_while_running(connector):
                await _receive_persistently(connector)
            return
        while True:
            try:
                await self._run_once(connector, on_begin, receive=_receive_persistently)
            except (LeaseLost, StoreBusy) as error:
                log.warning("connector.stopped", connector=connector.platform, reason=str(error))
                await asyncio.sleep(LOOK_SECONDS)

    async def run_bot(self, connector: Connector, receive: Receive) -> None:
        """Run a bot until cancelled, under its lease, which protects a token that two bots share by mistake.

        ``receive`` runs the connector while the lease is held. Raises ``AccountRefused`` when the platform refuses the
        account, and ``LeaseLost``.
        """
        loop = asyncio.get_running_loop()
        refused: asyncio.Future[str] = loop.create_future()

        def record_refusal(reason: str) -> None:
            """Record the reason of the first refusal; may be called from any thread."""
            loop.call_soon_threadsafe(lambda: None if refused.done() else refused.set_result(reason))

        # Bots are added at run time, so the start of the process does not wait for the bots' workers.
        await self._run_once(connector, lambda: None, record_refusal, refused, receive=receive)
        if refused.done() and not refused.cancelled():
            raise AccountRefused(refused.result())

    async def _run_once(
        self,
        connector: Connector,
        on_begin: Callable[[], None],
        record_refusal: Callable[[str], None] = lambda _: None,
        *ends: "asyncio.Future[str]",
        receive: Receive,
    ) -> None:
        """Run a connector under its lease until it ends or one of ``ends`` is done; raises ``LeaseLost``."""
        place = (connector.platform, connector.account)
        lost = f"This process has lost the lease of the connector {'/'.join(place)}, and sends nothing there"
        async with hold_lease(self.leases, connector, self.say) as lease:
            with self.hub.register_while_running(connector, record_refusal, lease), self._fence(place, lease):
                tasks = [asyncio.create_task(receive(connector))]
                if not self.settings.temporal.embedded:
                    tasks.append(asyncio.create_task(self._poll(connector, on_begin)))
                try:
                    await wait_for_first(wait_for_loss(lease), *ends, watched=tasks)
                    if not lease.is_held:
                        # Said before the parts end, which may wait for a store that does not answer.
                        self.say(f"{lost}; it waits to get the connector back.")
                finally:
                    await cancel_tasks(tasks)
            if not lease.is_held:
                raise LeaseLost(lost)

    async def _poll(self, connector: Connector, on_begin: Callable[[], None]) -> None:
        """Poll the connector's queue; after a drain, wait for the connector to be cancelled."""
        await self.engine.run_worker(self.parts_of(connector), on_begin)
        await asyncio.Event().wait()

    @contextlib.contextmanager
    def _fence(self, place: tuple[str, str], lease: Lease) -> Iterator[None]:
        """Let transactions that mark a message of this account as being sent check the lease."""
        self.fences[place] = lease
        try:
            yield
        finally:
            del self.fences[place]


async def _receive_persistently(connector: Connector) -> None:
    """Run a connector until it ends; run it again after a failure of the store, such as a full disk at its start.

    Its lease stays where it is meanwhile, because for another process the store would be as busy.
    """
    while True:
        try:
            return await connector.run()
        except StoreBusy as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the store failed while the connector ended
            log.warning("connector.stopped", connector=connector.platform, reason=str(error))
            await asyncio.sleep(LOOK_SECONDS)


def describe_closed_ports(connectors: Sequence[WebConnector]) -> str:
    """Return a sentence about connectors with a port that is not open yet; "" when all ports are open."""
    is_waiting = any(not connector.accepts_connections for connector in connectors)
    return f"not listening yet: {WebConnector.platform}" if is_waiting else ""


def is_job_open(store: Store, job_id: str) -> bool:
    """Tell whether a job has not ended yet, so that its typing indicator is still shown."""
    with store.view() as tx:
        return not tx.jobs.read_status(job_id).ended
