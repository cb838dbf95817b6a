"""Turns what somebody said into text, by the first account of the provider for that which can."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from maestro.domain.llm.accounts import AccountType, Choice, choose
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.errors import CallSite, LLMFailure, ModelTimeout
from maestro.domain.llm.models import bare
from maestro.domain.settings.llm import TranscriptionSettings
from maestro.llm.accounts import AccountBook, Roster
from maestro.llm.litellm_client import LiteLLMLibrary
from maestro.llm.middleware.failover import MOVES_ON, FailoverProgress
from maestro.llm.protocols import Account
from maestro.llm.translation import base_url, key
from maestro.supervision import uninterrupted

# Providers tell the format by the name of the file.
_NAMES = {
    "audio/ogg": "voice.ogg",
    "audio/mpeg": "voice.mp3",
    "audio/mp4": "voice.m4a",
    "audio/wav": "voice.wav",
    "audio/webm": "voice.webm",
    "audio/flac": "voice.flac",
}


@dataclass(frozen=True, slots=True)
class Audio:
    """A recording, and its type by its own bytes."""

    content: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class TranscriptionAttempt:
    """One request to one account, about to leave or however it ended; ``error`` is the name of a class."""

    site: CallSite
    state: CallState
    duration_ms: int
    text: str = ""
    error: str = ""


KeepAttempt = Callable[[TranscriptionAttempt], Awaitable[None]]
"""Commits an attempt, as sent before it leaves and then as it ended; a cancellation does not cut it off."""


class Transcriber:
    """Asks one account after the other, as the failover of the chain does (docs/decisions.md: failover)."""

    def __init__(
        self, book: AccountBook, library: LiteLLMLibrary, settings: Callable[[], TranscriptionSettings]
    ) -> None:
        """``terms`` are asked for at each recording; None while nobody is to transcribe."""
        self._book = book
        self._library = library
        self._settings = settings

    async def transcribe(self, audio: Audio, keep: KeepAttempt) -> bool:
        """Have a recording transcribed; false when nobody can. Every attempt is kept before anything else happens.

        Raises the last failure after which the same may be tried again soon.
        """
        outcome = await self._ask_around(audio, keep)
        if isinstance(outcome, LLMFailure):
            # Raised out here, where no other exception is being handled.
            raise outcome
        return outcome

    async def _ask_around(self, audio: Audio, keep: KeepAttempt) -> bool | LLMFailure:
        terms, clock = self._settings(), asyncio.get_running_loop()
        if not terms.enabled:
            return False
        walk = FailoverProgress((f"{terms.provider}/{bare(terms.model)}",), clock.time() + terms.max_seconds)
        while walk.may_go_on(clock.time()):
            roster = await asyncio.to_thread(self._book.read)
            choice = _choose(roster, terms, walk)
            account = self._book.find(choice.account.name) if choice else None
            if choice is None or account is None:
                break
            failure = await self._attempt(account, audio, keep, walk)
            if failure is None:
                return True
            walk.note(choice, failure)
            await uninterrupted(asyncio.to_thread(self._book.report, choice, failure))
            if not isinstance(failure, MOVES_ON):
                break
        return walk.repeatable[-1] if walk.repeatable else False

    async def _attempt(
        self, account: Account, audio: Audio, keep: KeepAttempt, walk: FailoverProgress
    ) -> LLMFailure | None:
        """Ask one account and keep what came of it; a failure is returned."""
        site = CallSite(account.provider, account.name, bare(walk.wanted[0]))
        started = time.monotonic()

        def attempt(state: CallState, text: str = "", error: str = "") -> TranscriptionAttempt:
            return TranscriptionAttempt(site, state, round((time.monotonic() - started) * 1000), text, error)

        try:
            await keep(attempt(CallState.SENT))
            text = await self._text(account, site, audio, walk.until)
        except LLMFailure as failure:
            await keep(attempt(CallState.FAILED, error=type(failure).__name__))
            return failure
        except asyncio.CancelledError:
            await keep(attempt(CallState.INTERRUPTED))
            raise
        await keep(attempt(CallState.ANSWERED, text))
        return None

    async def _text(self, account: Account, site: CallSite, audio: Audio, until: float) -> str:
        """Return what was said; raises an ``LLMFailure`` without any text."""
        arguments = {
            "model": f"{account.provider}/{site.model}",
            "file": (_NAMES.get(audio.content_type, "voice"), audio.content, audio.content_type),
            "api_key": key(account),
            "api_base": base_url(account),
            "max_retries": 0,
            "num_retries": 0,
        }
        try:
            async with asyncio.timeout_at(until):
                return await self._library.transcribe(site, arguments, _transcript)
        except TimeoutError:
            failure = ModelTimeout("No whole transcript in time; see llm.transcription.maxSeconds.")
            failure.site = site
        raise failure


def _choose(roster: Roster, terms: TranscriptionSettings, walk: FailoverProgress) -> Choice | None:
    """Return whom to ask; unlike with texts, nobody can stand in with a model of another kind."""
    able = [
        account
        for account in roster.usable
        if account.provider == terms.provider and account.type is AccountType.API_KEY
    ]
    choice = choose(able, walk.wanted, roster.limited, walk.tried)
    return choice if choice is not None and choice.model == bare(terms.model) else None


def _transcript(answer: Any) -> str:
    """Read litellm's answer, the untyped one."""
    return str(answer.text or "").strip()
