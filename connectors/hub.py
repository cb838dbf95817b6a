"""The connectors of this process, their typing indicators, and the choice between sending and finding a chunk.

See docs/adr/0022.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import structlog

from connectors.base import AcknowledgesMessages, Connector, EditsMessages, Idempotency, OnAmbiguous, Reconciles
from connectors.failures import FailureScope, FileUnavailable, NotDispatched, PermanentSend, SendFailure
from maestro.domain.cluster import Lease
from maestro.domain.errors import MaestroError, NotFound, StoreBusy
from maestro.domain.messages import Address, OutgoingMessage, Receipt

LONGEST_TYPING = 600.0
"""Seconds after which a typing indicator ends by itself, even if its job is still open."""

LONGEST_ACKNOWLEDGEMENT = 30.0

FetchFile = Callable[[str], object]
"""A function that brings the stored file with a digest to this host; raises ``NotFound`` or ``StoreBusy``."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def attempt(connector: Connector, message: OutgoingMessage) -> Receipt | SendFailure:
    """Send a chunk and return a failure as a value, so that the caller can record the outcome before anything else."""
    return await _failure_as_value(connector.send(message))


async def _failure_as_value(call: Awaitable[T]) -> T | SendFailure:
    try:
        return await call
    except SendFailure as failure:
        return failure


class SendAction(StrEnum):
    """What to do with a chunk: send it, search for it on the platform first, send it again, or leave it unconfirmed."""

    SEND = "send"
    LOOK = "look"
    RESEND = "resend"
    LEAVE = "leave"


def choose_action(message: OutgoingMessage, connector: Connector, now: datetime) -> SendAction:
    """Return what the next attempt to send a chunk must do.

    A chunk that certainly never arrived is sent, and so is an edit, which may be repeated. While the platform remembers
    the key of a message, a repeated send is harmless. After that time, or without keys, the connector searches for the
    message. If it cannot search, the account's rule for ambiguous sends applies.
    """
    if message.tried_at is None or message.edits:
        return SendAction.SEND
    able = connector.capabilities
    window = able.native_window
    if able.idempotency is Idempotency.NATIVE and (window is None or now - message.tried_at < window):
        return SendAction.SEND
    return SendAction.LOOK if isinstance(connector, Reconciles) else choose_action_in_doubt(message, connector)


def choose_action_in_doubt(message: OutgoingMessage, connector: Connector) -> SendAction:
    """Return the action for a chunk with an outcome that can never be known: resend it, or leave it unconfirmed."""
    rule = connector.capabilities.on_ambiguous
    held = rule is OnAmbiguous.HOLD or (rule is OnAmbiguous.AUTO and message.unasked)
    return SendAction.LEAVE if held else SendAction.RESEND


class ConnectorHub:
    """The connectors of this process, by platform and account."""

    def __init__(self, fetch: FetchFile = lambda _: None) -> None:
        """``fetch`` brings the file of a chunk to this host before it is sent."""
        self._fetch = fetch
        self._connectors: dict[tuple[str, str], Connector] = {}
        self._refusals: dict[tuple[str, str], Callable[[str], None]] = {}
        self._leases: dict[tuple[str, str], Lease | None] = {}

    @contextlib.contextmanager
    def register_while_running(
        self, connector: Connector, refused: Callable[[str], None] = lambda _: None, lease: Lease | None = None
    ) -> Iterator[None]:
        """Register the connector while the block runs.

        When the platform refuses the account, ``refused`` is called with the reason, possibly from another thread.
        While ``lease`` is not held, nothing is sent. Without a lease, no other process can run the connector.
        """
        key = (connector.platform, connector.account)
        self._connectors[key], self._refusals[key], self._leases[key] = connector, refused, lease
        try:
            yield
        finally:
            del self._connectors[key], self._refusals[key], self._leases[key]

    async def perform_send_action(
        self, connector: Connector, message: OutgoingMessage, action: SendAction
    ) -> Receipt | SendFailure:
        """Perform ``action``: search for the chunk if asked, send it unless found, and return failures as values.

        A chunk that replaces another message is sent as an edit of that message. If the chunk's file was deleted, the
        chunk can only be searched for.
        """
        if message.edits:
            if not isinstance(connector, EditsMessages):
                return PermanentSend("this platform cannot edit sent messages", FailureScope.MESSAGE)
            failure = self._find_loss(connector) or await _failure_as_value(connector.edit(message))
            return failure or Receipt(platform_message_id=message.edits)
        if action is SendAction.LOOK and isinstance(connector, Reconciles):
            outcome = await _failure_as_value(connector.find(message))
            if outcome is not None:
                return outcome
        missing = await asyncio.to_thread(self._fetch_file, message) if message.path is not None else None
        return missing or self._find_loss(connector) or await attempt(connector, message)

    def holds_lease(self, connector: Connector) -> bool:
        """Return whether this process may send through a connector, or another one may have taken it over.

        A connector that has ended may send nothing: a step that got it before may go on after its lease was lost.
        """
        key = (connector.platform, connector.account)
        if self._connectors.get(key) is not connector:
            return False
        lease = self._leases[key]
        return lease is None or lease.is_held

    def _fetch_file(self, message: OutgoingMessage) -> SendFailure | None:
        """Bring the file of a message to this host; return the failure of the send if that is not possible."""
        assert message.path is not None
        try:
            self._fetch(message.path.name)
        except StoreBusy as error:
            return FileUnavailable(str(error))
        except NotFound:
            is_there = False
        else:
            is_there = message.path.is_file()
        deleted = f"the file {message.filename} was deleted from Maestro's storage"
        return None if is_there else PermanentSend(deleted, FailureScope.MESSAGE)

    def _find_loss(self, connector: Connector) -> SendFailure | None:
        """Return a failure if this process must not send any more; asked immediately before each send (ADR 42)."""
        if self.holds_lease(connector):
            return None
        name = f"{connector.platform}/{connector.account}"
        return NotDispatched(f"this process may have lost the lease of the connector {name}")

    def report_refusal(self, address: Address, reason: str) -> None:
        """Report to the task that runs an address's connector that the platform refuses the account."""
        report = self._refusals.get((address.platform, address.account))
        if report is not None:
            report(reason)

    def list_connectors(self) -> Sequence[Connector]:
        """Return every connector of this process."""
        return list(self._connectors.values())

    def find_connector(self, address: Address) -> Connector | None:
        """Return the connector of an address, or None when another process runs it."""
        return self._connectors.get((address.platform, address.account))

    def runs_connector(self, address: Address) -> bool:
        """Tell whether this process runs the connector of an address."""
        return self.find_connector(address) is not None

    def get_connector(self, address: Address) -> Connector:
        """Return the connector of an address; raises ``NotDispatched`` when this process does not run it."""
        connector = self.find_connector(address)
        if connector is None:
            raise NotDispatched(f"no connector for {address.platform}/{address.account} runs in this process")
        return connector


class TypingIndicators:
    """The typing indicators of open jobs, refreshed in the background; any thread may call the methods.

    ``is_open`` reads whether a job is still open, because another process may end the job.
    """

    def __init__(self, hub: ConnectorHub, loop: asyncio.AbstractEventLoop, is_open: Callable[[str], bool]) -> None:
        self._hub = hub
        self._loop = loop
        self._is_open = is_open
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._acknowledging: set[asyncio.Task[None]] = set()

    def start_indicator(self, job_id: str, address: Address, message_ids: Collection[str] = ()) -> bool:
        """Show the indicator until ``stop_indicator``; return false when another process runs the connector.

        An indicator that is already shown continues. ``message_ids`` are the platform's ids of the messages to
        acknowledge, in their order.
        """
        connector = self._hub.find_connector(address)
        if connector is None:
            return False
        self._loop.call_soon_threadsafe(self._start_task, job_id, connector, address)
        if message_ids and isinstance(connector, AcknowledgesMessages):
            self._loop.call_soon_threadsafe(self._acknowledge_messages, connector, address, message_ids)
        return True

    def stop_indicator(self, job_id: str) -> None:
        """End the indicator of a job."""
        self._loop.call_soon_threadsafe(self._cancel_task, job_id)

    def _start_task(self, job_id: str, connector: Connector, address: Address) -> None:
        task = self._tasks.get(job_id)
        if task is None or task.done():
            self._tasks[job_id] = self._loop.create_task(self._show_typing(job_id, connector, address))

    def _acknowledge_messages(
        self, connector: AcknowledgesMessages, address: Address, message_ids: Collection[str]
    ) -> None:
        task = self._loop.create_task(_acknowledge_all(connector, address, message_ids))
        self._acknowledging.add(task)
        task.add_done_callback(self._acknowledging.discard)

    def _cancel_task(self, job_id: str) -> None:
        task = self._tasks.pop(job_id, None)
        if task is not None:
            task.cancel()

    async def _show_typing(self, job_id: str, connector: Connector, address: Address) -> None:
        try:
            async with asyncio.timeout(LONGEST_TYPING):
                await connector.typing(address)
                await asyncio.sleep(connector.capabilities.typing_interval)
                while await asyncio.to_thread(self._is_open, job_id) and self._hub.holds_lease(connector):
                    await connector.typing(address)
                    await asyncio.sleep(connector.capabilities.typing_interval)
        except TimeoutError:
            log.info("typing.expired", platform=address.platform)
        except MaestroError as error:
            # The typing indicator is optional: its failure must not stop the answer.
            log.info("typing.failed", platform=address.platform, error=type(error).__name__)
        finally:
            if self._tasks.get(job_id) is asyncio.current_task():
                del self._tasks[job_id]


async def _acknowledge_all(connector: AcknowledgesMessages, address: Address, message_ids: Collection[str]) -> None:
    for message_id in message_ids:
        try:
            async with asyncio.timeout(LONGEST_ACKNOWLEDGEMENT):
                await connector.acknowledge(address, message_id)
        except (MaestroError, TimeoutError) as error:
            # The reaction is optional: its failure must not stop the answer.
            log.info("acknowledgement.failed", platform=address.platform, error=type(error).__name__)
