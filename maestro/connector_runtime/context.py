"""What connectors may ask of Maestro, done with the store.

See docs/architecture.md: who may import whom.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from ulid import ULID

from connectors.base import ConnectorState, Identity, IdentityRole, KnownChannel, Upload
from maestro.domain.errors import InvalidMessage, NotFound
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt, Report
from maestro.domain.people.people import UploadedFile
from maestro.intake import AccountIntake, Intake
from maestro.store.files import MediaFolder
from maestro.store.store import Store

TROUBLE = (ConnectorState.DEGRADED, ConnectorState.FAILED)


class StoreContext(AccountIntake):
    """The context of one connector; every method hands its transaction to a thread."""

    def __init__(self, place: tuple[str, str], intake: Intake, store: Store, files: MediaFolder) -> None:
        """``place`` is the connector's platform and account."""
        super().__init__(intake)
        self._platform, self._account = place
        self._store = store
        self._files = files

    async def cursor(self, channel: str, thread: str = "") -> str | None:
        """Return up to where a channel was read."""
        return await asyncio.to_thread(self._cursor, self._place(channel, thread))

    async def advance(self, channel: str, mark: str, thread: str = "") -> None:
        """Keep up to where a channel was read."""
        await asyncio.to_thread(self._advance, self._place(channel, thread), mark)

    async def remember_channel(self, channel: str, thread: str = "", *, direct: bool = False) -> None:
        """Keep that there is such a channel."""
        await asyncio.to_thread(self._remember, self._place(channel, thread), direct)

    async def known_channels(self) -> Sequence[KnownChannel]:
        """Return what was ever seen."""
        return await asyncio.to_thread(self._known)

    async def skipped(self, channel: str, count: int, why: str) -> None:
        """Count what was not taken in, where operators see it."""
        await asyncio.to_thread(self._skipped, self._place(channel), count, why)

    async def sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[OutgoingMessage]:
        """Return what was sent to this channel after the given delivery, oldest first, up to the limit."""
        return await asyncio.to_thread(self._sent_since, address, after_id, limit)

    async def newest_delivery(self) -> int:
        """Return the highest id of a delivery."""
        return await asyncio.to_thread(self._newest_delivery)

    async def last_heard(self, channel: str) -> datetime | None:
        """Return when the newest message of a channel was written."""
        return await asyncio.to_thread(self._last_heard, self._place(channel))

    async def told(self, key: str, report: Report) -> bool:
        """Keep what the platform says of a message of ours."""
        return await asyncio.to_thread(self._told, key, report)

    async def receipt(self, key: str) -> Receipt | None:
        """Return what the platform has told us a message is known as."""
        return await asyncio.to_thread(self._receipt, key)

    async def pressed(self, key: str, number: int) -> str | None:
        """Return what a button says."""
        return await asyncio.to_thread(self._pressed, key, number)

    async def moved(self, channel: str, to: str) -> None:
        """Let everything of a channel go along with it."""
        await asyncio.to_thread(self._moved, self._place(channel), to)

    async def moved_to(self, channel: str) -> str:
        """Return where a channel goes on."""
        return await asyncio.to_thread(self._moved_to, self._place(channel))

    async def open_channel(self, address: Address, user_id: str) -> bool:
        """Give the channel to this user if nobody has it."""
        return await asyncio.to_thread(self._open_channel, address, user_id)

    async def redeem(self, ticket: str) -> Identity | None:
        """Use a ticket up."""
        return await asyncio.to_thread(self._redeem, ticket)

    async def keep_upload(self, user_id: str, upload: Upload) -> Attachment:
        """Keep an uploaded file for this user."""
        return await asyncio.to_thread(self._keep_upload, user_id, upload)

    async def uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        """Return the user's uploads."""
        return await asyncio.to_thread(self._uploads, user_id, ids)

    async def upload_file(self, attachment_id: str) -> Path:
        """Return where a kept upload is."""
        return await asyncio.to_thread(self._upload_file, attachment_id)

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        """Keep the connector's state for operators."""
        await asyncio.to_thread(self._report, state, detail)

    def _place(self, channel: str, thread: str = "") -> Address:
        return Address(platform=self._platform, account=self._account, channel=channel, thread=thread)

    def _cursor(self, place: Address) -> str | None:
        with self._store.view() as tx:
            return tx.bots.channels.cursor(place)

    def _advance(self, place: Address, mark: str) -> None:
        with self._store.begin() as tx:
            tx.bots.channels.advance(place, mark)

    def _remember(self, place: Address, direct: bool) -> None:
        with self._store.begin() as tx:
            tx.bots.channels.remember(place, direct=direct)

    def _known(self) -> Sequence[KnownChannel]:
        with self._store.view() as tx:
            known = tx.bots.channels.known(self._platform, self._account)
            return [KnownChannel(row.channel, row.thread, row.mark, row.direct, row.seen_at) for row in known]

    def _skipped(self, place: Address, count: int, why: str) -> None:
        with self._store.begin() as tx:
            tx.inbox.ignored.add(place, why, count)

    def _sent_since(self, address: Address, after_id: int, limit: int) -> Sequence[OutgoingMessage]:
        with self._store.view() as tx:
            found = tx.deliveries.sent_since(address, after_id, limit)
        path = self._files.path
        return [row.outgoing(more=more, path=path(row.digest) if row.digest else None) for row, more in found]

    def _newest_delivery(self) -> int:
        with self._store.view() as tx:
            return tx.deliveries.newest_id()

    def _last_heard(self, place: Address) -> datetime | None:
        with self._store.view() as tx:
            return tx.bots.channels.last_heard(place)

    def _told(self, key: str, report: Report) -> bool:
        with self._store.begin() as tx:
            return tx.deliveries.reports.apply(self._place(""), key, report)

    def _receipt(self, key: str) -> Receipt | None:
        with self._store.view() as tx:
            return tx.deliveries.reports.receipt(self._place(""), key)

    def _pressed(self, key: str, number: int) -> str | None:
        with self._store.view() as tx:
            return tx.deliveries.reports.pressed(self._place(""), key, number)

    def _moved(self, place: Address, to: str) -> None:
        with self._store.begin() as tx:
            tx.bots.moves.add(place, to)

    def _moved_to(self, place: Address) -> str:
        with self._store.view() as tx:
            return tx.bots.channels.moved_to(place)

    def _open_channel(self, address: Address, user_id: str) -> bool:
        with self._store.begin() as tx:
            return tx.users.own_channel(address, user_id)

    def _redeem(self, ticket: str) -> Identity | None:
        with self._store.begin() as tx:
            found = tx.users.take_ticket(ticket)
        return Identity(found.user_id, found.user_name, IdentityRole(found.role)) if found else None

    def _keep_upload(self, user_id: str, upload: Upload) -> Attachment:
        digest = self._files.take(upload.path)
        with self._store.begin() as tx:
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

    def _uploads(self, user_id: str, ids: Sequence[str]) -> tuple[Attachment, ...]:
        with self._store.view() as tx:
            found = tx.users.uploads(ids)
        for upload_id in ids:
            if upload_id not in found or found[upload_id].user_id != user_id:
                raise InvalidMessage(f"attachment {upload_id} is not one of your uploads; send it to /api/upload first")
        return tuple(_attachment(found[upload_id]) for upload_id in ids)

    def _upload_file(self, attachment_id: str) -> Path:
        with self._store.view() as tx:
            found = tx.users.uploads([attachment_id])
        if attachment_id not in found:
            raise NotFound(f"there is no upload {attachment_id}")
        return self._files.path(found[attachment_id].digest)

    def _report(self, state: ConnectorState, detail: str) -> None:
        with self._store.begin() as tx:
            tx.users.connector_state(self._platform, self._account, state, detail, trouble=state in TROUBLE)


def _attachment(record: UploadedFile) -> Attachment:
    return Attachment(id=record.id, filename=record.filename, content_type=record.content_type, size=record.size)
