"""Fetches and stores the files of a message, and transcribes its voice messages."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from temporalio import activity

from connectors.base import Connector, FetchesMedia, FetchFailure, PermanentFetch
from connectors.hub import ConnectorHub
from maestro.domain.jobs.flow import MediaOutcome, VoiceOutcome
from maestro.domain.jobs.job import StepRef
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.usage import VOICE, UsageRow
from maestro.domain.media import HEAD_BYTES, TEXT, UNKNOWN, MediaFile, detect_type, is_text
from maestro.domain.messages import Address, Attachment
from maestro.llm.middleware.limits import StopMonitor
from maestro.llm.transcriber import Transcriber, TranscriptionAttempt
from maestro.store.files import MediaFolder
from maestro.store.store import Store, commit_persistently


@dataclass(frozen=True)
class MissingFiles:
    """The files of a job's messages that are not stored yet; ``held`` is the number of files that are stored.

    Each missing file is given as a new row for its result, and as its reference on the platform.
    """

    address: Address
    inbox_ids: tuple[int, ...]
    missing: tuple[tuple[MediaFile, Attachment], ...]
    held: int


@dataclass(frozen=True)
class MediaActivities:
    """Fetches files through the connector that received the message."""

    store: Store
    files: MediaFolder
    connectors: ConnectorHub

    @activity.defn
    async def fetch_media(self, ref: StepRef) -> MediaOutcome:
        """Fetch the files of the job's messages; a file that no longer exists is recorded as unavailable."""
        files = await asyncio.to_thread(self._find_missing, ref)
        connector = self.connectors.get_connector(files.address)
        with self.files.create_temporary_folder() as folder:
            fetching = [_fetch_file(connector, file, folder / str(n)) for n, (_, file) in enumerate(files.missing)]
            results = await asyncio.gather(*fetching, return_exceptions=True)
            return await asyncio.to_thread(self._store_files, ref, files, results)

    def _find_missing(self, ref: StepRef) -> MissingFiles:
        with self.store.view() as tx:
            job = tx.jobs.get(ref.job_id)
            messages = {row.id: row for row in tx.jobs.merged.list_answered_messages(job) if row.id is not None}
            files = [file for files in tx.inbox.media.list_files_of_messages(list(messages)).values() for file in files]
            missing = tuple(
                (
                    MediaFile(inbox_id=file.inbox_id, seq=file.seq, filename=file.filename),
                    messages[file.inbox_id].files()[file.seq],
                )
                for file in files
                if not file.digest
            )
            return MissingFiles(job.address, tuple(messages), missing, held=len(files) - len(missing))

    def _store_files(self, ref: StepRef, files: MissingFiles, results: Sequence[Path | BaseException]) -> MediaOutcome:
        rows = [self._fill_row(row, result) for (row, _), result in zip(files.missing, results, strict=True)]
        with self.store.begin() as tx:
            for row in rows:
                tx.inbox.media.save_file(row)
            unavailable = sum(not row.digest for row in rows)
            stored, voices = (
                files.held + len(rows) - unavailable,
                tx.inbox.media.list_untranscribed_files(files.inbox_ids),
            )
            return tx.jobs.steps.finish_step(
                ref, MediaOutcome(files=stored, unavailable=unavailable, voices=len(voices))
            )

    def _fill_row(self, row: MediaFile, result: Path | BaseException) -> MediaFile:
        """Return the row with the file or its permanent failure; raise a failure that may pass on a retry."""
        if isinstance(result, Path):
            row.size = result.stat().st_size
            row.content_type = detect_content_type(result)
            row.digest = self.files.move_in(result)
        elif isinstance(result, FetchFailure) and not result.retryable:
            row.error = str(result) or result.public
        else:
            raise result
        return row


async def _fetch_file(connector: Connector, attachment: Attachment, folder: Path) -> Path:
    if not isinstance(connector, FetchesMedia):
        raise PermanentFetch(f"the connector {connector.platform} fetches no files")
    await asyncio.to_thread(folder.mkdir)
    return await connector.fetch(attachment, folder)


def detect_content_type(path: Path) -> str:
    """Return the content type found in a file's bytes; the type that the platform states is ignored."""
    with path.open("rb") as file:
        known = detect_type(file.read(HEAD_BYTES))
        file.seek(0)
        return known or (TEXT if is_text(iter(lambda: file.read(64 * 1024), b"")) else UNKNOWN)


@dataclass(frozen=True)
class VoiceActivities:
    """Transcribes the voice messages of a job, each exactly once."""

    store: Store
    files: MediaFolder
    transcriber: Transcriber
    watch: StopMonitor

    @activity.defn
    async def transcribe(self, ref: StepRef) -> VoiceOutcome:
        """Transcribe the job's voice messages that have no transcript; commit each transcript as soon as it is there.

        See docs/invariants.md: no answer bought twice.
        """
        voices = await asyncio.to_thread(self._find_voices, ref)
        transcribed = 0
        for voice in voices:
            transcribed += await self.watch.run_until_stopped(ref.job_id, self._transcribe_voice(ref, voice))
        outcome = VoiceOutcome(voices=len(voices), transcribed=transcribed)
        return await asyncio.to_thread(self.store.write, lambda tx: tx.jobs.steps.finish_step(ref, outcome))

    async def _transcribe_voice(self, ref: StepRef, voice: MediaFile) -> bool:
        content = await asyncio.to_thread(self.files.read_content, voice.digest)
        recorder = _TranscriptRecorder(self.store, ref.job_id, voice)
        return await self.transcriber.transcribe_recording(content, voice.content_type, recorder.record_transcript)

    def _find_voices(self, ref: StepRef) -> list[MediaFile]:
        with self.store.view() as tx:
            messages = tx.jobs.merged.list_answered_messages(tx.jobs.get(ref.job_id))
            return list(tx.inbox.media.list_untranscribed_files([row.id for row in messages if row.id is not None]))


@dataclass
class _TranscriptRecorder:
    """Records the attempts to transcribe a voice message, each as a usage row written before the request is sent."""

    store: Store
    job_id: str
    voice: MediaFile
    row_id: int = 0

    async def record_transcript(self, attempt: TranscriptionAttempt) -> None:
        """Store an attempt's state, and a transcript with its usage, so that no transcript is paid for twice."""
        await commit_persistently(self.store, partial(self._commit_transcript, attempt))

    def _commit_transcript(self, attempt: TranscriptionAttempt) -> None:
        with self.store.begin() as tx:
            if attempt.state is CallState.SENT:
                tx.jobs.steps.require_newest()
                self.row_id = tx.llm.usage.add_request(
                    UsageRow(
                        at=tx.now,
                        job_id=self.job_id,
                        purpose=VOICE,
                        number=self.voice.seq + 1,
                        attempt=0,
                        provider=attempt.site.provider,
                        model=attempt.site.model,
                        account=attempt.site.account,
                        state=CallState.INTERRUPTED,  # This state remains if the process dies during the request.
                    )
                )
                return
            tx.llm.usage.complete_request(self.row_id, attempt.state, attempt.duration_ms, attempt.error)
            if attempt.state is CallState.ANSWERED:
                tx.inbox.media.set_transcript(self.voice.id, attempt.text)
                tx.llm.accounts.record_success(attempt.site.account, attempt.site.model, None)
