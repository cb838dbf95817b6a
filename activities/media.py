"""Step 5 of a message: the files it refers to are fetched, looked at and kept."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from temporalio import activity

from activities.delivery import Connectors
from connectors.base import Connector, FetchesMedia, PermanentFetch
from maestro.domain.filetypes import HEAD_BYTES, TEXT, UNKNOWN, by_magic, is_text
from maestro.domain.flow import MediaOutcome
from maestro.domain.jobs import StepRef
from maestro.domain.media import MediaFile
from maestro.domain.messages import Address, Attachment
from maestro.store.files import Files
from maestro.store.store import Store

BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True)
class Wanted:
    """The files of one message and where they are; the inbox row they belong to."""

    inbox_id: int
    address: Address
    attachments: tuple[Attachment, ...]


class MediaActivities:
    """Fetches through the connector that took the message (specification 003, steps 1 and 7)."""

    def __init__(self, store: Store, files: Files, connectors: Connectors) -> None:
        self._store = store
        self._files = files
        self._connectors = connectors

    @activity.defn
    async def fetch_media(self, ref: StepRef) -> MediaOutcome:
        """Fetch every file; one that is gone for good is recorded as such, for it must not cost the answer."""
        wanted = await asyncio.to_thread(self._wanted, ref)
        connector = self._connectors.holding(wanted.address)
        with self._files.arriving() as folder:
            fetching = [_fetch(connector, one, folder / str(seq)) for seq, one in enumerate(wanted.attachments)]
            found = await asyncio.gather(*fetching, return_exceptions=True)
            return await asyncio.to_thread(self._keep, ref, wanted, found)

    def _wanted(self, ref: StepRef) -> Wanted:
        with self._store.view() as tx:
            row = tx.inbox.get(tx.jobs.get(ref.job_id).inbox_id)
            return Wanted(row.id or 0, row.message().address, row.files())

    def _keep(self, ref: StepRef, wanted: Wanted, found: Sequence[Path | BaseException]) -> MediaOutcome:
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, PermanentFetch):
                raise one
        rows = [self._row(wanted, seq, one) for seq, one in enumerate(found) if isinstance(one, Path | PermanentFetch)]
        with self._store.begin() as tx:
            for row in rows:
                tx.media.add(row)
            gone = sum(not row.digest for row in rows)
            return tx.steps.done(ref, MediaOutcome(files=len(rows) - gone, unavailable=gone))

    def _row(self, wanted: Wanted, seq: int, found: Path | PermanentFetch) -> MediaFile:
        row = MediaFile(inbox_id=wanted.inbox_id, seq=seq, filename=wanted.attachments[seq].filename)
        if isinstance(found, PermanentFetch):
            row.error = str(found) or found.public
            return row
        row.size = found.stat().st_size
        row.content_type = content_type(found)
        row.digest = self._files.take(found)
        return row


async def _fetch(connector: Connector, attachment: Attachment, folder: Path) -> Path:
    if not isinstance(connector, FetchesMedia):
        raise PermanentFetch(f"the connector {connector.platform} fetches no files")
    await asyncio.to_thread(folder.mkdir)
    return await connector.fetch(attachment, folder)


def content_type(path: Path) -> str:
    """Return what a file is by its own bytes; what somebody said of it counts for nothing."""
    with path.open("rb") as file:
        known = by_magic(file.read(HEAD_BYTES))
        file.seek(0)
        return known or (TEXT if is_text(iter(lambda: file.read(BLOCK_BYTES), b"")) else UNKNOWN)
