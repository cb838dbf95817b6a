"""Commits every request before it leaves and every answer before anybody sees it.

See docs/invariants.md: no answer bought twice.
"""

import asyncio
import time
from dataclasses import dataclass, field

import structlog

from maestro.domain.llm.budgets import Payer
from maestro.domain.llm.calls import NO_TOKENS, CallEstimate, Expense
from maestro.domain.llm.errors import LLMFailure, ModelTimeout
from maestro.domain.llm.prompts import TOOL_SPECS, KeptRequest, LLMRequest, LLMResponse, Usage
from maestro.llm.estimates import Estimates
from maestro.llm.held_answers import HeldAnswers, Keep, nothing_more
from maestro.llm.middleware.call_snapshot import CallSnapshot
from maestro.llm.protocols import LLMClient
from maestro.store.prompts import packed_request
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.uninterrupted import uninterrupted

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Attempt:
    """A request that leaves, the number of the attempt, and when it began, by a clock that is never set."""

    number: int
    request: LLMRequest
    estimate: CallEstimate
    began: float = field(default_factory=time.monotonic)

    @property
    def milliseconds(self) -> int:
        """Return how long it has taken."""
        return round((time.monotonic() - self.began) * 1000)


class Recorder:
    """What it passes on is exactly what it has committed: nothing inside of it may change a request.

    Each attempt ends in one transaction: its row, its row in the usage log, the account's count and the budgets. An
    answer is held until that transaction is committed.
    """

    def __init__(self, inner: LLMClient, store: Store, estimates: Estimates, keep: Keep = nothing_more) -> None:
        """``keep`` is called for every answer, in the transaction that commits it."""
        self._inner = inner
        self._store = store
        self._estimates = estimates
        self._answers = HeldAnswers(store, keep)

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Send what an earlier attempt sent, if it was cut off, to the account chosen now, and keep what comes back."""
        attempt = await self._sent(request)
        _tell(attempt)
        try:
            response = await self._inner.complete(attempt.request)
        except asyncio.CancelledError:
            await uninterrupted(asyncio.to_thread(self._interrupted, attempt))
            raise
        # No attempt stays open in the store, whatever ended it (docs/invariants.md: steps leave rows).
        except Exception as error:
            await uninterrupted(asyncio.to_thread(self._failed, attempt, error))
            raise
        await self._answers.commit(attempt.number, attempt.request, response, _payer(request))
        return response

    async def _sent(self, request: LLMRequest) -> Attempt:
        """Commit the request; when cancelled meanwhile, see to it that nobody takes it for one that left."""
        sending = asyncio.create_task(asyncio.to_thread(self._send, request))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            await uninterrupted(self._take_back(sending))
            raise

    async def _take_back(self, sending: asyncio.Task[Attempt]) -> None:
        """Wait for the commit of a request that is not to leave any more; there is nothing to do where it failed."""
        await asyncio.wait([sending])
        if sending.exception() is None:
            await asyncio.to_thread(self._unsent, sending.result())

    def _send(self, request: LLMRequest) -> Attempt:
        # Both read the whole prompt: not while others wait to write.
        estimate, packed = self._estimates.least(request), packed_request(request)
        with self._store.begin() as tx:
            if request.on_send is not None:
                request.on_send(tx)
            kept = tx.calls.before_sending(request.key, packed.texts.raw)
            cut_off = tx.calls.cut_off_request(request.key)
            if cut_off is None:
                digest = tx.prompts.keep_request(packed, kept)
            else:
                request = _restore(tx, request, cut_off)
                estimate, digest = self._estimates.least(request), tx.prompts.keep_request(packed_request(request))
            told = (request.chat_after, request.chat_upto)
            return Attempt(tx.calls.sent(request.key, digest, estimate, told), request, estimate)

    def _unsent(self, attempt: Attempt) -> None:
        with self._store.begin() as tx:
            tx.calls.unsent(attempt.request.key, attempt.number)

    def _interrupted(self, attempt: Attempt) -> None:
        with self._store.begin() as tx:
            tx.calls.interrupted(attempt.request.key, attempt.number, attempt.milliseconds)

    def _failed(self, attempt: Attempt, error: Exception) -> None:
        expense = _expense(error, attempt)
        with self._store.begin() as tx:
            tx.calls.failed(attempt.request.key, attempt.number, type(error).__name__, expense)


def _tell(attempt: Attempt) -> None:
    """Write to the log what leaves now."""
    request = attempt.request
    log.info(
        "llm.request",
        job=request.key.job_id,
        call=request.key.number,
        purpose=request.key.purpose.value,
        attempt=attempt.number,
        account=request.account,
        model=request.model,
        newPointer=request.chat_upto,
    )


def _payer(request: LLMRequest) -> Payer | None:
    """Return who pays, where the store need not be asked again."""
    snapshot = request.snapshot
    return snapshot.budgets.payer if isinstance(snapshot, CallSnapshot) else None


def _expense(error: Exception, attempt: Attempt) -> Expense:
    """Return what a failed attempt took: an answer of nothing is paid, and so is one that is too late."""
    if isinstance(error, ModelTimeout):
        read = Usage(input_tokens=attempt.estimate.input_tokens)
        return Expense(read, attempt.estimate.cost_usd, attempt.milliseconds)
    if isinstance(error, LLMFailure):
        return Expense(error.usage or NO_TOKENS, error.cost_usd, attempt.milliseconds)
    return Expense(duration_ms=attempt.milliseconds)


def _restore(tx: Transaction, request: LLMRequest, digest: str) -> LLMRequest:
    """Return the request with all that is kept under the digest, but for the account and its model."""
    kept = KeptRequest.model_validate_json(tx.prompts.text(digest))
    return request.model_copy(
        update={
            "platform": kept.platform,
            "max_output_tokens": kept.max_output_tokens,
            "messages": tx.prompts.unpack(kept.turns),
            "tools": TOOL_SPECS.validate_json(tx.prompts.text(kept.tools)) if kept.tools else (),
            "final": kept.final,
            "never_empty": kept.never_empty,
            "chat_after": kept.chat_after,
            "chat_upto": kept.chat_upto,
            "reminded": kept.reminded,
        }
    )
