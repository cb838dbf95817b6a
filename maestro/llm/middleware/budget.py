"""Refuses a call whose budget is used up, and sets aside what every other one may cost (decision 3)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from maestro.domain.errors import WaitReason
from maestro.domain.llm.accounts import AccountStatus, Choice, ModelAccount, able, candidates, choose
from maestro.domain.llm.budgets import BudgetScope, DailyBudgets, Limit, Payer, limits_of
from maestro.domain.llm.errors import BudgetExceeded
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.llm.tokens import estimate_input
from maestro.llm.estimates import Estimates
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store
from maestro.uninterrupted import uninterrupted

RESERVED_WAIT = timedelta(seconds=10)
"""How long a call waits for reservations of other calls to be settled."""


@dataclass(frozen=True)
class Plan:
    """What a call has to keep to, and the most it may cost; None when the price is unknown.

    ``used_up`` is the limit that was used up when this was looked up, ``cheaper`` the model to fall back to, empty
    when no account has it.
    """

    payer: Payer
    limits: tuple[Limit, ...] = ()
    used_up: Limit | None = None
    usd: float | None = None
    cheaper: str = ""
    cheaper_usd: float | None = None


@dataclass
class Admission:
    """Whether anything is reserved for a call that nobody has answered."""

    reserved: bool = False


class Budget:
    """Reserves before a call and releases after one that failed; what answers it settles it, with the answer.

    ``budgets`` is asked at each call. A call is let through while anything is left of every limit, and what calls
    under way may cost counts as spent, so that a budget is overspent by at most one call's estimate. Without a limit
    nothing is written; nor for a call whose price is unknown or nothing, though a budget that is used up stops it too.
    """

    def __init__(
        self, inner: LLMClient, store: Store, estimates: Estimates, budgets: Callable[[], DailyBudgets]
    ) -> None:
        self._inner = inner
        self._store = store
        self._estimates = estimates
        self._budgets = budgets

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on, to the cheaper model if there is one for this.

        Raises ``BudgetExceeded`` otherwise, with the time at which the budget may have room again.
        """
        admission = Admission()
        try:
            admitted = await uninterrupted(asyncio.to_thread(self._admit, request, admission))
            response = await self._inner.complete(admitted)
            admission.reserved = False
        finally:
            if admission.reserved:
                await uninterrupted(asyncio.to_thread(self._release, request))
        return response

    def _admit(self, request: LLMRequest, admission: Admission) -> LLMRequest:
        """Return the request to go on with, having reserved what it may cost."""
        budgets = self._budgets()
        plan = self._plan(request, budgets)
        if not plan.limits:
            return request
        used_up = self._reserve(request, plan, admission)
        if used_up is None:
            return request
        if used_up.scope is BudgetScope.DAY or not plan.cheaper:
            raise self._refusal(used_up)
        # Exactly this one: who stands in for it may be dearer than what the budget was used up with.
        return request.model_copy(update={"model": plan.cheaper, "fallbacks": (), "exact": True})

    def _plan(self, request: LLMRequest, budgets: DailyBudgets) -> Plan:
        tokens = estimate_input(request)

        def cost(choice: Choice) -> float | None:
            return self._estimates.most(choice, tokens, request.max_output_tokens)

        def most(accounts: Sequence[ModelAccount], *wanted: str) -> float | None:
            first = choose(accounts, wanted, tx.accounts.limits())
            usual = cost(first) if first is not None else None
            if not usual:
                return usual
            # Failover may come to the dearest of those who may be asked, and the budget has to hold then, too.
            return max(filter(None, map(cost, candidates(accounts, wanted))), default=usual)

        with self._store.view() as tx:
            payer = tx.budgets.payer(request.key.job_id)
            limits = limits_of(payer, budgets)
            if not limits:
                return Plan(payer)
            usable = [account for account in tx.accounts.all() if account.status is AccountStatus.ACTIVE]
            usd = most(usable, request.model, *request.fallbacks)
            used_up = tx.budgets.exceeded(limits)
            cheaper = budgets.fallback_model
            cheap = able(usable, (cheaper,))
            return Plan(payer, limits, used_up, usd, cheaper if cheap else "", most(cheap, cheaper))

    def _reserve(self, request: LLMRequest, plan: Plan, admission: Admission) -> Limit | None:
        """Reserve what the call, or else a cheaper one, may cost; return the limit that is used up, if one is.

        What an attempt that died had reserved is given back first: a call reserves once. Beyond the limit of an agent,
        a client or a conversation a cheaper call still counts, against the limit of everybody together.
        """
        if not (plan.usd or plan.cheaper_usd):
            return plan.used_up
        with self._store.begin() as tx:
            tx.steps.require_newest()
            tx.budgets.release(request.key)
            used_up = tx.budgets.exceeded(plan.limits)
            for_all = used_up is not None and used_up.scope is BudgetScope.DAY
            usd = plan.usd if used_up is None else plan.cheaper_usd
            if usd and not for_all:
                tx.budgets.reserve(request.key, plan.payer, usd)
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
