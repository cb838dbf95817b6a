"""Middleware for budgets, the record of each request and answer, and drafts of an answer while it is written.

See docs/decisions.md: access; docs/invariants.md: no answer bought twice.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from io import StringIO

import structlog

from maestro.domain.drafts import MOST_CHARACTERS
from maestro.domain.errors import StoreBusy, WaitReason
from maestro.domain.llm.accounts import (
    AccountStatus,
    ModelAccount,
    accounts_for_models,
    choose_account,
    list_candidates,
)
from maestro.domain.llm.budgets import DUST, BudgetLimit, BudgetScope
from maestro.domain.llm.calls import NO_TOKENS, BudgetExceeded, CallEstimate, Expense, LLMFailure, ModelTimeout
from maestro.domain.llm.models import estimate_input
from maestro.domain.llm.prompts import TOOL_SPECS, CallKey, LLMRequest, LLMResponse, StoredRequest, Usage
from maestro.domain.tags.grammar import visible_so_far
from maestro.domain.texts import storable_text
from maestro.llm.accounts import Estimates, Roster
from maestro.llm.middleware.replay import AnswerSpool, CallReader, CallSnapshot, PayerBudgets
from maestro.llm.middleware.request_changes import require_content
from maestro.llm.protocols import LLMClient
from maestro.llm.wire import stream_to
from maestro.store.llm.prompts import packed_request
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.supervision import finish_despite_cancellation

RESERVED_WAIT = timedelta(seconds=10)
"""The time after which a job retries when other calls have reserved the rest of a budget."""

_RESTORED = StoredRequest.model_fields.keys() & LLMRequest.model_fields.keys() - {"model", "account", "tools"}
"""The fields of a request that are restored unchanged from the stored request."""

log = structlog.get_logger(__name__)


class ReservationRefused(Exception):
    """The error when other calls have used up a budget since the snapshot of this call was read."""


@dataclass(slots=True)
class CallReservation:
    """The budgets of one call, its highest possible cost (None: unknown), and whether that cost is reserved.

    ``cheaper`` is the model to call when a budget is used up; empty when no account has it.
    """

    key: CallKey
    budgets: PayerBudgets
    usd: float | None = None
    cheaper: str = ""
    cheaper_usd: float | None = None
    reserved: bool = False

    def reserve_cost(self, tx: Transaction) -> None:
        """Reserve the cost in the transaction that commits the first attempt; later attempts share this reservation."""
        if not self.reserved:
            budgets = self.budgets
            used_up = tx.llm.budgets.reserve_cost(self.key, budgets.payer, self.usd or 0.0, budgets.limits)
            if used_up is not None:
                raise ReservationRefused  # The exception rolls back the transaction with the reservation.
            self.reserved = True


@dataclass(slots=True)
class Budget:
    """Middleware that reserves the cost of a call, and releases it after a failure; the recorder settles it.

    A call passes while every budget has any amount left. Reserved costs of calls under way count as spent, so a budget
    is overspent by at most one call's estimate. The snapshot gives a first decision; the transaction that commits the
    request decides finally. Nothing is reserved without a budget, or for a call whose price is zero or unknown. A
    used-up budget stops such calls as well.
    """

    inner: LLMClient
    reader: CallReader
    store: Store
    estimates: Estimates

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on; if a budget is used up, with the cheaper model, if there is one.

        Raises ``BudgetExceeded`` otherwise, with the time at which the budget is available again.
        """
        snapshot = request.snapshot or await self.reader.read_snapshot(request)
        if not snapshot.budgets.limits:
            return await self.inner.complete(request)
        call, response = self._plan_reservation(request, snapshot), None
        try:
            if snapshot.budgets.used_up is None:
                with suppress(ReservationRefused):  # A refused reservation is handled below this block.
                    reserve = call.reserve_cost if call.usd else None
                    response = await self.inner.complete(request.model_copy(update={"on_send": reserve}))
            if response is None:
                admitted = await finish_despite_cancellation(asyncio.to_thread(self._admit_call, request, call))
                response = await self.inner.complete(admitted)
            call.reserved = False  # the transaction that committed the answer settled the reservation
        finally:
            if call.reserved:
                await finish_despite_cancellation(asyncio.to_thread(self._release_cost, request.key))
        return response

    def _plan_reservation(self, request: LLMRequest, snapshot: CallSnapshot) -> CallReservation:
        """Return the reservation for a call, with the highest possible costs of its models and of the cheaper model."""
        budgets, roster = snapshot.budgets, snapshot.roster
        usable = [account for account in roster.known if account.status is AccountStatus.ACTIVE]
        usual = self._estimate_highest_cost(request, roster, usable, (request.model, *request.fallbacks))
        cheap = accounts_for_models(usable, (budgets.cheaper_model,)) if budgets.cheaper_model else []
        if not cheap:
            return CallReservation(request.key, budgets, usual)
        cheaper_usd = self._estimate_highest_cost(request, roster, cheap, (budgets.cheaper_model,))
        return CallReservation(request.key, budgets, usual, budgets.cheaper_model, cheaper_usd)

    def _estimate_highest_cost(
        self, request: LLMRequest, roster: Roster, accounts: Sequence[ModelAccount], models: Sequence[str]
    ) -> float | None:
        """Return the highest cost among the accounts that may be called; 0 or None if the first is free or unpriced.

        Failover may reach the most expensive account, and the budget must suffice there as well.
        """
        first, tokens = choose_account(accounts, models, roster.limited), estimate_input(request)
        usual = self.estimates.max_usd(first, tokens, request.max_output_tokens) if first is not None else None
        if not usual:
            return usual
        others = (choice for choice in list_candidates(accounts, models) if choice != first)
        costs = (self.estimates.max_usd(choice, tokens, request.max_output_tokens) for choice in others)
        return max((usual, *filter(None, costs)))

    def _admit_call(self, request: LLMRequest, call: CallReservation) -> LLMRequest:
        """Reserve the cost of a call although the snapshot had a used-up budget; return the request to pass on."""
        used_up = self._reserve_cost(call)
        if used_up is None:
            return request
        if used_up.scope is BudgetScope.DAY or not call.cheaper:
            raise self._build_budget_failure(used_up)
        # The cheaper model gets no fallbacks: a fallback may cost more than the model that used up the budget.
        return request.model_copy(update={"model": call.cheaper, "fallbacks": (), "exact": True})

    def _reserve_cost(self, call: CallReservation) -> BudgetLimit | None:
        """Reserve the cost of the call, or else of the cheaper model; return the used-up budget, if there is one.

        A reservation left by a dead process is released first, because a call reserves once. A call of the cheaper
        model may exceed the budget of an agent, client or conversation, but counts against the budget of the day.
        """
        if not (call.usd or call.cheaper_usd):
            return call.budgets.used_up
        with self.store.begin(job=call.key.job_id) as tx:
            tx.jobs.steps.require_newest()
            tx.llm.budgets.release_reservation(call.key)
            # Reserving compares the limits with sums that no other call can change before the commit.
            used_up = tx.llm.budgets.reserve_cost(call.key, call.budgets.payer, call.usd or 0.0, call.budgets.limits)
            call.reserved = used_up is None
            if used_up is not None:
                tx.llm.budgets.release_reservation(call.key)
            if used_up is not None and used_up.scope is not BudgetScope.DAY and call.cheaper_usd:
                tx.llm.budgets.reserve_cost(call.key, call.budgets.payer, call.cheaper_usd)
                call.reserved = True
            return used_up

    def _build_budget_failure(self, limit: BudgetLimit) -> BudgetExceeded:
        """Return the failure, which lasts until the next day or until calls under way settle their reservations."""
        with self.store.view() as tx:
            spent = tx.llm.budgets.read_level((limit.scope, limit.subject)).spent_usd >= limit.usd - DUST
            tomorrow = tx.llm.budgets.next_day
            soon = tx.now + RESERVED_WAIT
        if spent:
            failure = BudgetExceeded(f"{limit} is used up; spending starts again at 0 at midnight UTC")
        else:
            failure = BudgetExceeded(f"{limit} is fully reserved by calls under way; the job retries later")
            failure.reason = WaitReason.ACCOUNT
        failure.wake_at = tomorrow if spent else soon
        return failure

    def _release_cost(self, key: CallKey) -> None:
        with self.store.begin(job=key.job_id) as tx:
            if not tx.jobs.steps.is_overtaken:  # If a newer attempt runs, the reservation belongs to it.
                tx.llm.budgets.release_reservation(key)


@dataclass(frozen=True)
class RecordedRequest:
    """A committed request, the number of its attempt, and its start on a monotonic clock."""

    number: int
    request: LLMRequest
    estimate: CallEstimate
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed_ms(self) -> int:
        return round((time.monotonic() - self.began) * 1000)


@dataclass(slots=True)
class Recorder:
    """Middleware that commits each request before it is sent, and its answer; inner middleware must change neither.

    One transaction ends each attempt: its row, its usage row, the account's count and the budgets. The answer is
    returned only after that transaction is committed.
    """

    inner: LLMClient
    store: Store
    estimates: Estimates
    answers: AnswerSpool

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Send the request, or the stored request of an interrupted earlier attempt, and commit the answer."""
        attempt = await self._commit_request(request)
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
        try:
            response = require_content(request, await self.inner.complete(request))
        except asyncio.CancelledError:
            await finish_despite_cancellation(
                asyncio.to_thread(
                    self.store.write,
                    lambda tx: tx.llm.calls.record_interruption(request.key, attempt.number, attempt.elapsed_ms),
                    job=request.key.job_id,
                )
            )
            raise
        # Whatever ended the attempt, its row must not stay open (docs/invariants.md: steps leave rows).
        except Exception as error:
            record = partial(self._record_failure, attempt, error)
            await finish_despite_cancellation(asyncio.to_thread(self.store.widen_scope, record))
            raise
        payer = request.snapshot.budgets.payer if request.snapshot is not None else None
        await self.answers.commit_answer(attempt.number, request, response, payer)
        return response

    async def _commit_request(self, request: LLMRequest) -> RecordedRequest:
        """Commit the request before it is sent; after a cancellation, record that it was not sent and cost nothing."""
        commit = asyncio.create_task(asyncio.to_thread(self.store.widen_scope, partial(self._write_request, request)))
        try:
            return await asyncio.shield(commit)
        except asyncio.CancelledError:
            await finish_despite_cancellation(self._undo_commit(commit))
            raise

    async def _undo_commit(self, commit: asyncio.Task[RecordedRequest]) -> None:
        await asyncio.wait([commit])
        if commit.exception() is None:
            key, number = commit.result().request.key, commit.result().number
            await asyncio.to_thread(
                self.store.write, lambda tx: tx.llm.calls.record_unsent(key, number), job=key.job_id
            )

    def _write_request(self, request: LLMRequest) -> RecordedRequest:
        # Estimating and packing a long prompt is slow, so both are done before the write transaction.
        estimate, packed = self.estimates.estimate_minimum(request), packed_request(request)
        with self.store.begin(job=request.key.job_id) as tx:
            on_send = request.on_send
            stored = tx.llm.calls.read_rows_before_sending(request.key, packed.texts.raw)
            cut_off = tx.llm.calls.find_interrupted_request(request.key)
            if cut_off is None:
                digest = tx.llm.prompts.store_request(packed, stored)
            else:
                request = restore_request(tx, request, cut_off)
                estimate = self.estimates.estimate_minimum(request)
                digest = tx.llm.prompts.store_request(packed_request(request))
            chat_range = (request.chat_after, request.chat_upto)
            number = tx.llm.calls.record_sending(request.key, digest, estimate, chat_range)
            if on_send is not None:  # The last change of the transaction: it locks rows that all calls change.
                on_send(tx)
            return RecordedRequest(number, request, estimate)

    def _record_failure(self, attempt: RecordedRequest, error: Exception) -> None:
        """Record a failed attempt with its cost: providers bill empty answers, and answers after the deadline."""
        usage, cost_usd = NO_TOKENS, None
        if isinstance(error, ModelTimeout):
            usage, cost_usd = Usage(input_tokens=attempt.estimate.input_tokens), attempt.estimate.cost_usd
        elif isinstance(error, LLMFailure):
            usage, cost_usd = error.usage or NO_TOKENS, error.cost_usd
        expense = Expense(usage, cost_usd, attempt.elapsed_ms)
        with self.store.begin(job=attempt.request.key.job_id) as tx:
            tx.llm.calls.record_failure(attempt.request.key, attempt.number, type(error).__name__, expense)


def restore_request(tx: Transaction, request: LLMRequest, digest: str) -> LLMRequest:
    """Return the stored request with this digest, but with the account and model of the new ``request``."""
    stored = StoredRequest.model_validate_json(tx.llm.prompts.read_text(digest))
    fields: dict[str, object] = {name: getattr(stored, name) for name in _RESTORED}
    fields["messages"] = tx.llm.prompts.restore_messages(stored.turns)
    fields["tools"] = TOOL_SPECS.validate_json(tx.llm.prompts.read_text(stored.tools)) if stored.tools else ()
    return request.model_copy(update=fields)


@dataclass(slots=True)
class DraftStreaming:
    """Middleware that stores drafts of an answer while it is written; each attempt restarts the same draft.

    A draft is never used as an answer, and an error while writing it never affects the call.
    """

    inner: LLMClient
    store: Store

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer the request and store drafts meanwhile; no draft is stored after the return."""
        if not request.shown_every:
            return await self.inner.complete(request)
        draft, grown = StringIO(), asyncio.Event()

        def append_to_draft(piece: str) -> None:
            if draft.tell() < MOST_CHARACTERS:
                draft.write(piece)
                grown.set()

        with stream_to(append_to_draft):
            writer = asyncio.create_task(self._write_drafts(request, draft, grown))
            try:
                return await self.inner.complete(request)
            finally:
                writer.cancel()
                await finish_despite_cancellation(asyncio.wait([writer]))

    async def _write_drafts(self, request: LLMRequest, draft: StringIO, grown: asyncio.Event) -> None:
        stored = ""
        while True:
            await grown.wait()
            grown.clear()
            text = draft.getvalue()[:MOST_CHARACTERS]
            stored = await finish_despite_cancellation(asyncio.to_thread(self._store_draft, request, text, stored))
            await asyncio.sleep(request.shown_every)

    def _store_draft(self, request: LLMRequest, written: str, stored: str) -> str:
        """Store the visible part of the text so far and return it; return ``stored`` if the store is busy."""
        text = visible_so_far(storable_text(written))
        if text and text != stored:
            try:
                with self.store.begin(job=request.key.job_id) as tx:
                    if not tx.jobs.steps.is_overtaken:  # A newer attempt writes the draft itself.
                        tx.deliveries.drafts.save_draft_text(request.key.job_id, request.key.number, text)
            except StoreBusy as error:
                log.info("draft.postponed", job=request.key.job_id, reason=str(error))
                return stored
        return text
