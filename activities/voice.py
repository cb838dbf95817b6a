"""What was said in the voice messages of a message becomes text."""

import asyncio
from datetime import datetime
from functools import partial

from temporalio import activity

from maestro.domain.jobs.flow import VoiceOutcome
from maestro.domain.jobs.job import StepRef
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.errors import CallSite
from maestro.domain.llm.usage import VOICE, UsageRow
from maestro.domain.media import MediaFile
from maestro.llm.middleware.interruption import StopWatch
from maestro.llm.transcriber import Audio, Transcriber, TranscriptionAttempt
from maestro.store.files import Files
from maestro.store.store import Store, committed


class VoiceActivities:
    """Has voices transcribed, each once."""

    def __init__(self, store: Store, files: Files, transcriber: Transcriber, watch: StopWatch) -> None:
        self._store = store
        self._files = files
        self._transcriber = transcriber
        self._watch = watch

    @activity.defn
    async def transcribe(self, ref: StepRef) -> VoiceOutcome:
        """Listen to every voice nobody has heard; each transcript is committed when it is there.

        See docs/invariants.md: no answer bought twice.
        """
        voices = await asyncio.to_thread(self._unheard, ref)
        heard = 0
        for voice in voices:
            heard += await self._watch.until_stopped(ref.job_id, self._listen(ref, voice))
        return await asyncio.to_thread(self._finish, ref, VoiceOutcome(voices=len(voices), transcribed=heard))

    async def _listen(self, ref: StepRef, voice: MediaFile) -> bool:
        content = await asyncio.to_thread(self._files.read, voice.digest)
        books = _Books(self._store, ref.job_id, voice)
        return await self._transcriber.transcribe(Audio(content, voice.content_type), books.keep)

    def _unheard(self, ref: StepRef) -> list[MediaFile]:
        with self._store.view() as tx:
            asked = tx.merges.asked(tx.jobs.get(ref.job_id))
            return list(tx.media.unheard([row.id for row in asked if row.id is not None]))

    def _finish(self, ref: StepRef, outcome: VoiceOutcome) -> VoiceOutcome:
        with self._store.begin() as tx:
            return tx.steps.done(ref, outcome)


class _Books:
    """What is written of the attempts at one voice: a row of usage for each, from before its request leaves."""

    def __init__(self, store: Store, job_id: str, voice: MediaFile) -> None:
        self._store = store
        self._job_id = job_id
        self._voice = voice
        self._row_id = 0

    async def keep(self, attempt: TranscriptionAttempt) -> None:
        """Keep a transcript with what it took, so that neither is lost nor bought again."""
        await committed(self._store, partial(self._commit, attempt))

    def _commit(self, attempt: TranscriptionAttempt) -> None:
        with self._store.begin() as tx:
            if attempt.state is CallState.SENT:
                tx.steps.require_newest()
                self._row_id = tx.usage.add(self._row(attempt.site, tx.now))
                return
            tx.usage.end(self._row_id, attempt.state, attempt.duration_ms, attempt.error)
            if attempt.state is CallState.ANSWERED:
                tx.media.heard(self._voice.id, attempt.text)
                tx.accounts.succeeded(attempt.site.account, attempt.site.model, None)

    def _row(self, site: CallSite, now: datetime) -> UsageRow:
        """Return the row of a request that leaves now; should the process die, it says already what became of it."""
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
