"""Fetches and stores the files of a message, and transcribes its voice messages."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from temporalio import activity

from activities.delivery import Connectors
from connectors.base import Connector, FetchesMedia, FetchFailure, PermanentFetch
from maestro.domain.jobs.flow import MediaOutcome, VoiceOutcome
from maestro.domain.jobs.job import StepRef
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.errors import CallSite
from maestro.domain.llm.usage import VOICE, UsageRow
from maestro.domain.media import HEAD_BYTES, TEXT, UNKNOWN, MediaFile, by_magic, is_text
from maestro.domain.messages import Address, Attachment
from maestro.llm.middleware.limits import StopWatch
from maestro.llm.transcriber import Audio, Transcriber, TranscriptionAttempt
from maestro.store.files import MediaFolder
from maestro.store.store import Store, committed

BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True)
class MissingFiles:
    """The files of a job's messages that are not stored yet; ``held`` counts the files that are.

    A missing file is a new row for the result, and the file's reference on the platform.
    """

    address: Address
    inbox_ids: tuple[int, ...]
    missing: tuple[tuple[MediaFile, Attachment], ...]
    held: int


class MediaActivities:
    """Fetches files through the connector that received the message."""

    def __init__(self, store: Store, files: MediaFolder, connectors: Connectors) -> None:
        self._store = store
        self._files = files
        self._connectors = connectors

    @activity.defn
    async def fetch_media(self, ref: StepRef) -> MediaOutcome:
        """Fetch every file; a file that no longer exists is recorded as unavailable, and does not stop the answer."""
        wanted = await asyncio.to_thread(self._wanted, ref)
        connector = self._connectors.holding(wanted.address)
        with self._files.arriving() as folder:
            fetching = [_fetch(connector, one, folder / str(n)) for n, (_, one) in enumerate(wanted.missing)]
            found = await asyncio.gather(*fetching, return_exceptions=True)
            return await asyncio.to_thread(self._keep, ref, wanted, found)

    def _wanted(self, ref: StepRef) -> MissingFiles:
        with self._store.view() as tx:
            job = tx.jobs.get(ref.job_id)
            asked = {row.id: row for row in tx.jobs.merged.answered_messages(job) if row.id is not None}
            known = [file for files in tx.inbox.media.of(list(asked)).values() for file in files]
            missing = tuple(
                (_new_row(file), asked[file.inbox_id].files()[file.seq]) for file in known if not file.digest
            )
            return MissingFiles(job.address, tuple(asked), missing, held=len(known) - len(missing))

    def _keep(self, ref: StepRef, wanted: MissingFiles, found: Sequence[Path | BaseException]) -> MediaOutcome:
        rows = [self._row(blank, _file_or_failure(one)) for (blank, _), one in zip(wanted.missing, found, strict=True)]
        with self._store.begin() as tx:
            for row in rows:
                tx.inbox.media.put(row)
            gone = sum(not row.digest for row in rows)
            there, voices = wanted.held + len(rows) - gone, len(tx.inbox.media.untranscribed(wanted.inbox_ids))
            return tx.jobs.steps.done(ref, MediaOutcome(files=there, unavailable=gone, voices=voices))

    def _row(self, row: MediaFile, found: Path | FetchFailure) -> MediaFile:
        if isinstance(found, FetchFailure):
            row.error = str(found) or found.public
            return row
        row.size = found.stat().st_size
        row.content_type = content_type(found)
        row.digest = self._files.take(found)
        return row


def _new_row(file: MediaFile) -> MediaFile:
    """Return a new row for a file, without the result of any earlier attempt."""
    return MediaFile(inbox_id=file.inbox_id, seq=file.seq, filename=file.filename)


def _file_or_failure(found: Path | BaseException) -> Path | FetchFailure:
    """Return the fetched file or the permanent failure; raises a failure that a retry may solve."""
    if isinstance(found, Path) or (isinstance(found, FetchFailure) and not found.retryable):
        return found
    raise found


async def _fetch(connector: Connector, attachment: Attachment, folder: Path) -> Path:
    if not isinstance(connector, FetchesMedia):
        raise PermanentFetch(f"the connector {connector.platform} fetches no files")
    await asyncio.to_thread(folder.mkdir)
    return await connector.fetch(attachment, folder)


def content_type(path: Path) -> str:
    """Return the content type found in a file's bytes; the platform's statement is ignored."""
    with path.open("rb") as file:
        known = by_magic(file.read(HEAD_BYTES))
        file.seek(0)
        return known or (TEXT if is_text(iter(lambda: file.read(BLOCK_BYTES), b"")) else UNKNOWN)


class VoiceActivities:
    """Transcribes voice messages, each exactly once."""

    def __init__(self, store: Store, files: MediaFolder, transcriber: Transcriber, watch: StopWatch) -> None:
        self._store = store
        self._files = files
        self._transcriber = transcriber
        self._watch = watch

    @activity.defn
    async def transcribe(self, ref: StepRef) -> VoiceOutcome:
        """Transcribe the voice messages without a transcript; each transcript is committed at once.

        See docs/invariants.md: no answer bought twice.
        """
        voices = await asyncio.to_thread(self._unheard, ref)
        heard = 0
        for voice in voices:
            heard += await self._watch.until_stopped(ref.job_id, self._listen(ref, voice))
        return await asyncio.to_thread(self._finish, ref, VoiceOutcome(voices=len(voices), transcribed=heard))

    async def _listen(self, ref: StepRef, voice: MediaFile) -> bool:
        content = await asyncio.to_thread(self._files.read, voice.digest)
        books = _TranscriptRecorder(self._store, ref.job_id, voice)
        return await self._transcriber.transcribe(Audio(content, voice.content_type), books.keep)

    def _unheard(self, ref: StepRef) -> list[MediaFile]:
        with self._store.view() as tx:
            asked = tx.jobs.merged.answered_messages(tx.jobs.get(ref.job_id))
            return list(tx.inbox.media.untranscribed([row.id for row in asked if row.id is not None]))

    def _finish(self, ref: StepRef, outcome: VoiceOutcome) -> VoiceOutcome:
        with self._store.begin() as tx:
            return tx.jobs.steps.done(ref, outcome)


class _TranscriptRecorder:
    """Records the attempts to transcribe a voice message, each as a usage row written before the request is sent."""

    def __init__(self, store: Store, job_id: str, voice: MediaFile) -> None:
        self._store = store
        self._job_id = job_id
        self._voice = voice
        self._row_id = 0

    async def keep(self, attempt: TranscriptionAttempt) -> None:
        """Store a transcript with its usage in one transaction, so that it is neither lost nor paid for again."""
        await committed(self._store, partial(self._commit, attempt))

    def _commit(self, attempt: TranscriptionAttempt) -> None:
        with self._store.begin() as tx:
            if attempt.state is CallState.SENT:
                tx.jobs.steps.require_newest()
                self._row_id = tx.llm.usage.add(self._row(attempt.site, tx.now))
                return
            tx.llm.usage.end(self._row_id, attempt.state, attempt.duration_ms, attempt.error)
            if attempt.state is CallState.ANSWERED:
                tx.inbox.media.set_transcript(self._voice.id, attempt.text)
                tx.llm.accounts.succeeded(attempt.site.account, attempt.site.model, None)

    def _row(self, site: CallSite, now: datetime) -> UsageRow:
        """Return the usage row of a request that is about to be sent; it stays correct if the process dies then."""
        return UsageRow(
            at=now,
            job_id=self._job_id,
            purpose=VOICE,
            number=self._voice.seq + 1,
            attempt=0,
            provider=site.provider,
            model=site.model,
            account=site.account,
            state=CallState.INTERRUPTED,
        )
