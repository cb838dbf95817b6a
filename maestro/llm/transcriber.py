"""Transcribes voice messages with the accounts of the configured provider."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from maestro.domain.llm.accounts import AccountType, choose_account
from maestro.domain.llm.calls import CallSite, CallState, LLMFailure, ModelTimeout
from maestro.domain.llm.models import remove_provider
from maestro.domain.settings.llm import TranscriptionSettings
from maestro.llm.accounts import AccountBook
from maestro.llm.litellm_client import LiteLLMLibrary
from maestro.llm.middleware.failover import FAILOVER_FAILURES, FailoverProgress
from maestro.llm.protocols import Account
from maestro.llm.translation import base_url, choose_key_to_send
from maestro.supervision import finish_despite_cancellation

# Providers derive the audio format from the file name.
_NAMES = {
    "audio/ogg": "voice.ogg",
    "audio/mpeg": "voice.mp3",
    "audio/mp4": "voice.m4a",
    "audio/wav": "voice.wav",
    "audio/webm": "voice.webm",
    "audio/flac": "voice.flac",
}


AudioFile = tuple[str, bytes, str]
"""The name, the content and the media type of a recording."""


@dataclass(frozen=True, slots=True)
class TranscriptionAttempt:
    """One request to one account, before it is sent or after it has ended; ``error`` is the name of an error class."""

    site: CallSite
    state: CallState
    duration_ms: int
    text: str = ""
    error: str = ""


KeepAttempt = Callable[[TranscriptionAttempt], Awaitable[None]]
"""A function that commits an attempt, before it is sent and again with its outcome; no cancellation interrupts it."""


@dataclass(slots=True)
class Transcriber:
    """Transcribes recordings: tries one account after the other, as for model calls (docs/decisions.md: failover)."""

    book: AccountBook
    library: LiteLLMLibrary
    settings: Callable[[], TranscriptionSettings]

    async def transcribe_recording(self, content: bytes, content_type: str, keep: KeepAttempt) -> bool:
        """Transcribe a recording and commit each attempt by ``keep``; return false when no account can transcribe it.

        ``content_type`` is the type found from the recording's first bytes. Raises the last failure that is worth a
        retry.
        """
        settings, clock = self.settings(), asyncio.get_running_loop()
        if not settings.enabled:
            return False
        audio = (_NAMES.get(content_type, "voice"), content, content_type)
        progress = FailoverProgress(
            (f"{settings.provider}/{remove_provider(settings.model)}",), clock.time() + settings.max_seconds
        )
        while progress.may_call_another(clock.time()):
            roster = await asyncio.to_thread(self.book.read_roster)
            # Accounts of other providers are no substitute, because their models cannot transcribe.
            able = [
                account
                for account in roster.usable
                if account.provider == settings.provider and account.type is AccountType.API_KEY
            ]
            choice = choose_account(able, progress.models, roster.limited, progress.tried)
            if choice is None or choice.model != remove_provider(settings.model):
                break
            account = self.book.find(choice.account.name)
            if account is None:
                break
            failure = await self._try_account(account, audio, keep, progress)
            if failure is None:
                return True
            progress.add_failure(choice, failure)
            await finish_despite_cancellation(asyncio.to_thread(self.book.record_failure, choice, failure))
            if not isinstance(failure, FAILOVER_FAILURES):
                break
        if progress.retryable_failures:
            raise progress.retryable_failures[-1]
        return False

    async def _try_account(
        self, account: Account, audio: AudioFile, keep: KeepAttempt, progress: FailoverProgress
    ) -> LLMFailure | None:
        """Call one account and commit the outcome; return a failure instead of raising it."""
        site = CallSite(account.provider, account.name, remove_provider(progress.models[0]))
        started = time.monotonic()

        def attempt_record(state: CallState, text: str = "", error: str = "") -> TranscriptionAttempt:
            return TranscriptionAttempt(site, state, round((time.monotonic() - started) * 1000), text, error)

        try:
            await keep(attempt_record(CallState.SENT))
            text = await self._request_transcript(account, site, audio, progress.until)
        except LLMFailure as failure:
            await keep(attempt_record(CallState.FAILED, error=type(failure).__name__))
            return failure
        except asyncio.CancelledError:
            await keep(attempt_record(CallState.INTERRUPTED))
            raise
        await keep(attempt_record(CallState.ANSWERED, text))
        return None

    async def _request_transcript(self, account: Account, site: CallSite, audio: AudioFile, until: float) -> str:
        """Return the transcript; raises an ``LLMFailure`` that quotes neither the provider nor the transcript."""
        arguments = {
            "model": f"{account.provider}/{site.model}",
            "file": audio,
            "api_key": choose_key_to_send(account),
            "api_base": base_url(account),
            "max_retries": 0,
            "num_retries": 0,
        }
        try:
            async with asyncio.timeout_at(until):
                return await self.library.transcribe_recording(
                    site, arguments, lambda answer: str(answer.text or "").strip()
                )
        except TimeoutError:
            failure = ModelTimeout("No whole transcript in time; see llm.transcription.maxSeconds.")
            failure.site = site
        raise failure
