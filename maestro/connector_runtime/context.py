"""The context of a connector: Maestro's services for it, backed by the store (docs/architecture.md)."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ulid import ULID

from connectors.base import ConnectorState, Identity, IdentityRole, KnownChannel, Upload
from maestro.domain.errors import InvalidMessage, NotFound
from maestro.domain.messages import (
    Address,
    Attachment,
    OutgoingMessage,
    Receipt,
    ReceiptReport,
)
from maestro.domain.people.people import UploadedFile
from maestro.intake import AccountIntake, Intake
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.store.transaction import Transaction

Result = TypeVar("Result")


class StoreContext(AccountIntake):
    """The context of one connector; every method runs its transaction in a thread."""

    def __init__(self, place: tuple[str, str], intake: Intake, store: Store, files: MediaFolder) -> None:
        """``place`` is the connector's platform and account."""
        super().__init__(intake)
        self._platform, self._account = place
        self._store = store
        self._files = files

    async def cursor(self, channel: str, thread: str = "") -> str | None:
        """Return the cursor of a channel: the id of the message up to which the channel was read."""
        return await self._read(lambda tx: tx.bots.channels.cursor(self._address(channel, thread)))

    async def advance(self, channel: str, mark: str, thread: str = "") -> None:
        """Move the cursor of a channel forward."""
        await self._change(lambda tx: tx.bots.channels.advance(self._address(channel, thread), mark))

    async def remember_channel(self, channel: str, thread: str = "", *, direct: bool = False) -> None:
        """Record that a channel exists."""
        await self._change(lambda tx: tx.bots.channels.record_activity(self._address(channel, thread), direct=direct))

    async def known_channels(self) -> Sequence[KnownChannel]:
        """Return all recorded channels of the account."""
        return await self._read(
            lambda tx: [
                KnownChannel(row.channel, row.thread, row.mark, row.direct, row.seen_at)
                for row in tx.bots.channels.known_channels(self._platform, self._account)
            ]
        )

    async def skipped(self, channel: str, count: int, why: str) -> None:
        """Add to the count of a channel's skipped messages, which operators see."""
        await self._change(lambda tx: tx.inbox.ignored.add(self._address(channel), why, count))

    async def sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[OutgoingMessage]:
        """Return the messages sent to this channel after the delivery ``after_id``, oldest first, at most ``limit``."""
        rows = await self._read(lambda tx: tx.deliveries.sent_since(address, after_id, limit))
        path = self._files.path
        return [row.outgoing(more=more, path=path(row.digest) if row.digest else None) for row, more in rows]

    async def newest_delivery(self) -> int:
        """Return the highest delivery id ever assigned."""
        return await self._read(lambda tx: tx.deliveries.newest_id())

    async def last_heard(self, channel: str) -> datetime | None:
        """Return the time of the newest incoming message in a channel."""
        return await self._read(lambda tx: tx.bots.channels.last_heard(self._address(channel)))

    async def record_report(self, key: str, report: ReceiptReport) -> bool:
        """Record the platform's delivery report about a message that Maestro sent."""
        return await self._change(lambda tx: tx.deliveries.reports.apply(self._address(""), key, report))

    async def receipt(self, key: str) -> Receipt | None:
        """Return the platform's receipt of a message; None until the platform has reported the receipt."""
        return await self._read(lambda tx: tx.deliveries.reports.receipt(self._address(""), key))

    async def pressed(self, key: str, number: int) -> str | None:
        """Return the text of the button that a user pressed, None if the button does not exist."""
        return await self._read(lambda tx: tx.deliveries.reports.button_value(self._address(""), key, number))

    async def moved(self, channel: str, to: str) -> None:
        """Move the bindings and conversations of a channel to the channel's new id on the platform."""
        await self._change(lambda tx: tx.bots.moves.add(self._address(channel), to))

    async def moved_to(self, channel: str) -> str:
        """Return the current id of a channel; ``channel`` itself if the id never changed."""
        return await self._read(lambda tx: tx.bots.channels.moved_to(self._address(channel)))

    async def open_channel(self, address: Address, user_id: str) -> bool:
        """Make this user the owner of a channel without an owner; return whether the user owns the channel now."""
        return await self._change(lambda tx: tx.users.claim_channel(address, user_id))

    async def redeem(self, ticket: str) -> Identity | None:
        """Exchange a one-time ticket for the identity of its user; None if it is unknown, used or expired."""
        row = await self._change(lambda tx: tx.users.take_ticket(ticket))
        return Identity(row.user_id, row.user_name, IdentityRole(row.role)) if row else None

    async def keep_upload(self, user_id: str, upload: Upload) -> Attachment:
        """Store an uploaded file for this user."""
        digest = await asyncio.to_thread(self._files.take, upload.path)

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
            return _attachment(record)

        return await self._change(add)

    async def uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        """Return the user's uploads; raises ``InvalidMessage`` for an upload of another user."""
        stored = await self._read(lambda tx: tx.users.uploads(ids))
        for upload_id in ids:
            if upload_id not in stored or stored[upload_id].user_id != user_id:
                raise InvalidMessage(f"attachment {upload_id} is not one of your uploads; send it to /api/upload first")
        return tuple(_attachment(stored[upload_id]) for upload_id in ids)

    async def upload_file(self, attachment_id: str) -> Path:
        """Return the path of a stored upload; raises ``NotFound``."""
        stored = await self._read(lambda tx: tx.users.uploads([attachment_id]))
        if attachment_id not in stored:
            raise NotFound(f"there is no upload {attachment_id}")
        return self._files.path(stored[attachment_id].digest)

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        """Record the connector's state, which operators see."""
        trouble = state in (ConnectorState.DEGRADED, ConnectorState.FAILED)
        account = (self._platform, self._account)
        await self._change(lambda tx: tx.users.connector_state(*account, state, detail, trouble=trouble))

    def _address(self, channel: str, thread: str = "") -> Address:
        return Address(platform=self._platform, account=self._account, channel=channel, thread=thread)

    async def _read(self, read: Callable[[Transaction], Result]) -> Result:
        return await asyncio.to_thread(_run_in_view, self._store, read)

    async def _change(self, change: Callable[[Transaction], Result]) -> Result:
        return await asyncio.to_thread(_run_in_transaction, self._store, change)


def _run_in_view(store: Store, read: Callable[[Transaction], Result]) -> Result:
    with store.view() as tx:
        return read(tx)


def _run_in_transaction(store: Store, change: Callable[[Transaction], Result]) -> Result:
    with store.begin() as tx:
        return change(tx)


def _attachment(record: UploadedFile) -> Attachment:
    return Attachment(id=record.id, filename=record.filename, content_type=record.content_type, size=record.size)
