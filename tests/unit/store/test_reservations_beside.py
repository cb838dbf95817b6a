"""Calls of several jobs that reserve the rest of one budget at the same time: one of them gets it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest import mock

from maestro.domain.llm.budgets import BudgetLimit, BudgetScope, SpendingLevel
from maestro.domain.llm.prompts import CallKey
from maestro.llm.middleware.recorder import Budget, CallReservation
from maestro.llm.middleware.replay import PayerBudgets
from tests.support.job_rows import JobRows

CALLS = 8
DAY = BudgetLimit(BudgetScope.DAY, "", 1.0)


def test_of_calls_that_reserve_the_rest_of_a_budget_at_once_one_gets_it(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path)
    with closing(rows.store) as store:
        keys = [CallKey(job_id=rows.add(), number=1) for _ in range(CALLS)]
        with store.view() as tx:
            payers = [tx.jobs.callers.read_payer(key.job_id) for key in keys]
        calls = [
            CallReservation(key, PayerBudgets(payer, (DAY,), None, ""), DAY.usd)
            for key, payer in zip(keys, payers, strict=True)
        ]
        unused: Any = mock.sentinel
        budget = Budget(unused.inner, unused.reader, store, unused.estimates)
        together = Barrier(CALLS)

        def reserve(call: CallReservation) -> BudgetLimit | None:
            together.wait(30)
            return budget._reserve_cost(call)

        with ThreadPoolExecutor(CALLS) as threads:
            used_up = list(threads.map(reserve, calls))
        assert sorted(limit is None for limit in used_up) == [False] * (CALLS - 1) + [True]
        assert [call.reserved for call in calls] == [limit is None for limit in used_up]
        with store.view() as tx:
            assert tx.llm.budgets.read_level((BudgetScope.DAY, "")) == SpendingLevel(0.0, DAY.usd)
