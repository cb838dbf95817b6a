"""The files that a message refers to: they are fetched, looked at and kept."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from temporalio import activity

from activities.delivery import Connectors
from connectors.base import Connector, FetchesMedia, FetchFailure, PermanentFetch
from maestro.domain.filetypes import HEAD_BYTES, TEXT, UNKNOWN, by_magic, is_text
from maestro.domain.jobs.flow import MediaOutcome
from maestro.domain.jobs.job import StepRef
from maestro.domain.media import MediaFile
from maestro.domain.messages import Address, Attachment
from maestro.store.files import Files
from maestro.store.store import Store

BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True)
class Wanted:
    """The files of a job's messages that we do not hold yet; ``held`` counts the others.

    A missing one is a row that says nothing yet, and what it refers to.
    """

    address: Address
    inbox_ids: tuple[int, ...]
    missing: tuple[tuple[MediaFile, Attachment], ...]
    held: int


class MediaActivities:
    """Fetches through the connector that took the message."""

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
            fetching = [_fetch(connector, one, folder / str(n)) for n, (_, one) in enumerate(wanted.missing)]
            found = await asyncio.gather(*fetching, return_exceptions=True)
            return await asyncio.to_thread(self._keep, ref, wanted, found)

    def _wanted(self, ref: StepRef) -> Wanted:
        with self._store.view() as tx:
            job = tx.jobs.get(ref.job_id)
            asked = {row.id: row for row in tx.merges.asked(job) if row.id is not None}
            known = [file for files in tx.media.of(list(asked)).values() for file in files]
            missing = tuple((_blank(file), asked[file.inbox_id].files()[file.seq]) for file in known if not file.digest)
            return Wanted(job.address, tuple(asked), missing, held=len(known) - len(missing))

    def _keep(self, ref: StepRef, wanted: Wanted, found: Sequence[Path | BaseException]) -> MediaOutcome:
        rows = [self._row(blank, _known(one)) for (blank, _), one in zip(wanted.missing, found, strict=True)]
        with self._store.begin() as tx:
            for row in rows:
                tx.media.put(row)
            gone = sum(not row.digest for row in rows)
            there, voices = wanted.held + len(rows) - gone, len(tx.media.unheard(wanted.inbox_ids))
            return tx.steps.done(ref, MediaOutcome(files=there, unavailable=gone, voices=voices))

    def _row(self, row: MediaFile, found: Path | FetchFailure) -> MediaFile:
        if isinstance(found, FetchFailure):
            row.error = str(found) or found.public
            return row
        row.size = found.stat().st_size
        row.content_type = content_type(found)
        row.digest = self._files.take(found)
        return row


def _blank(file: MediaFile) -> MediaFile:
    """Return the row of a file of which nothing is known, not even why it could not be had before."""
    return MediaFile(inbox_id=file.inbox_id, seq=file.seq, filename=file.filename)


def _known(found: Path | BaseException) -> Path | FetchFailure:
    """Return the file or why it is gone for good; raises what may be better next time."""
    if isinstance(found, Path) or (isinstance(found, FetchFailure) and not found.retryable):
        return found
    raise found


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
