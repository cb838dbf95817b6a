"""Refuses a call whose budget is used up, and sets aside what every other one may cost (docs/decisions.md: access)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from maestro.domain.errors import WaitReason
from maestro.domain.llm.accounts import AccountStatus, Choice, ModelAccount, able, candidates, choose
from maestro.domain.llm.budgets import BudgetScope, Limit
from maestro.domain.llm.errors import BudgetExceeded
from maestro.domain.llm.models import estimate_input
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.estimates import Estimates
from maestro.llm.middleware.call_snapshot import CallReader, CallSnapshot, PayerBudgets
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.uninterrupted import uninterrupted

RESERVED_WAIT = timedelta(seconds=10)
"""How long a call waits for reservations of other calls to be settled."""


class ReservationRefused(Exception):
    """Other calls have used up the budget since the snapshot was read."""


@dataclass(frozen=True)
class Plan:
    """What a call has to keep to, and the most it may cost; None when the price is unknown.

    ``cheaper`` is the model to fall back to, empty when no account has it.
    """

    budgets: PayerBudgets
    usd: float | None = None
    cheaper: str = ""
    cheaper_usd: float | None = None


@dataclass
class Admission:
    """Whether anything is reserved for a call that is not answered."""

    reserved: bool = False


class Budget:
    """Reserves with a call and releases after one that failed; what answers it settles it, with the answer.

    A call is let through while anything is left of every limit, and what calls under way may cost counts as spent, so
    that a budget is overspent by at most one call's estimate. The snapshot decides, and the transaction that commits
    the request decides again as it reserves. Without a limit nothing is written; nor for a call whose price is unknown
    or nothing, though a budget that is used up stops it too.
    """

    def __init__(self, inner: LLMClient, reader: CallReader, store: Store, estimates: Estimates) -> None:
        self._inner = inner
        self._reader = reader
        self._store = store
        self._estimates = estimates

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on, to the cheaper model if there is one for this.

        Raises ``BudgetExceeded`` otherwise, with the time at which the budget may have room again.
        """
        snapshot = await self._reader.snapshot(request)
        if not snapshot.budgets.limits:
            return await self._inner.complete(request)
        plan, admission = self._plan(request, snapshot), Admission()
        try:
            response = await self._ask(request, plan, admission)
            admission.reserved = False
        finally:
            if admission.reserved:
                await uninterrupted(asyncio.to_thread(self._release, request))
        return response

    async def _ask(self, request: LLMRequest, plan: Plan, admission: Admission) -> LLMResponse:
        if plan.budgets.used_up is None:
            reserve = partial(self._reserve_with_request, request, plan, admission) if plan.usd else None
            try:
                return await self._inner.complete(request.model_copy(update={"on_send": reserve}))
            except ReservationRefused:
                pass  # decided out here, so that a refusal does not carry this one along
        admitted = await uninterrupted(asyncio.to_thread(self._admit, request, plan, admission))
        return await self._inner.complete(admitted)

    def _reserve_with_request(self, request: LLMRequest, plan: Plan, admission: Admission, tx: Transaction) -> None:
        """Reserve in the transaction that commits the first attempt; further attempts have that reservation."""
        if not admission.reserved:
            budgets, usd = plan.budgets, plan.usd or 0.0
            if tx.budgets.reserve(request.key, budgets.payer, usd, budgets.limits) is not None:
                raise ReservationRefused  # which rolls the reservation back
            admission.reserved = True

    def _admit(self, request: LLMRequest, plan: Plan, admission: Admission) -> LLMRequest:
        """Return the request to go on with where a budget seems used up, having reserved what it may cost."""
        used_up = self._reserve(request, plan, admission)
        if used_up is None:
            return request
        if used_up.scope is BudgetScope.DAY or not plan.cheaper:
            raise self._refusal(used_up)
        # Exactly this one: who stands in for it may be dearer than what the budget was used up with.
        return request.model_copy(update={"model": plan.cheaper, "fallbacks": (), "exact": True})

    def _plan(self, request: LLMRequest, snapshot: CallSnapshot) -> Plan:
        tokens, roster, cheaper = estimate_input(request), snapshot.roster, snapshot.budgets.cheaper_model

        def cost(choice: Choice) -> float | None:
            return self._estimates.most(choice, tokens, request.max_output_tokens)

        def most(accounts: Sequence[ModelAccount], *wanted: str) -> float | None:
            first = choose(accounts, wanted, roster.limited)
            usual = cost(first) if first is not None else None
            if not usual:
                return usual
            # Failover may come to the dearest of those who may be asked, and the budget has to hold then, too.
            return max(filter(None, map(cost, candidates(accounts, wanted))), default=usual)

        usable = [account for account in roster.known if account.status is AccountStatus.ACTIVE]
        cheap = able(usable, (cheaper,))
        usd = most(usable, request.model, *request.fallbacks)
        return Plan(snapshot.budgets, usd, cheaper if cheap else "", most(cheap, cheaper))

    def _reserve(self, request: LLMRequest, plan: Plan, admission: Admission) -> Limit | None:
        """Reserve what the call, or else a cheaper one, may cost; return the limit that is used up, if one is.

        What an attempt that died had reserved is given back first: a call reserves once. Beyond the limit of an agent,
        a client or a conversation a cheaper call still counts, against the limit of everybody together.
        """
        if not (plan.usd or plan.cheaper_usd):
            return plan.budgets.used_up
        with self._store.begin() as tx:
            tx.steps.require_newest()
            tx.budgets.release(request.key)
            used_up = tx.budgets.exceeded(plan.budgets.limits)
            for_all = used_up is not None and used_up.scope is BudgetScope.DAY
            usd = plan.usd if used_up is None else plan.cheaper_usd
            if usd and not for_all:
                tx.budgets.reserve(request.key, plan.budgets.payer, usd)
                admission.reserved = True
            return used_up

    def _refusal(self, limit: Limit) -> BudgetExceeded:
        """Wait for the next day, or, where only calls under way have reserved what is left, for their end."""
        with self._store.view() as tx:
            spent, tomorrow = tx.budgets.level((limit.scope, limit.subject)).uses_up(limit), tx.budgets.tomorrow
            soon = tx.now + RESERVED_WAIT
        if spent:
            failure = BudgetExceeded(f"{limit} is used up; it is counted anew from midnight UTC")
        else:
            failure = BudgetExceeded(f"{limit} has no room while the calls under way are not settled")
            failure.reason = WaitReason.ACCOUNT
        failure.wake_at = tomorrow if spent else soon
        return failure

    def _release(self, request: LLMRequest) -> None:
        with self._store.begin() as tx:
            if not tx.steps.overtaken:  # else what is reserved now is of the attempt that took the step
                tx.budgets.release(request.key)
