"""Reservations: made once, settled in the day they were made in, and given back by everything that ends a call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.jobs.job import JobEnding, JobStatus
from maestro.domain.llm.budgets import BudgetLimit, BudgetScope, Payer, SpendingLevel
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.prompts import CallKey
from tests.support.job_rows import JobRows
from tests.support.llm_requests import response_of

ESTIMATE = CallEstimate("anthropic", "claude-haiku-4-5", 1000, 0.125, "main")
ANSWER = response_of("hello").model_copy(update={"cost_usd": 0.5})
DAY = (BudgetScope.DAY, "")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def key(rows: JobRows) -> CallKey:
    return CallKey(job_id=rows.add(), number=1)


def reserve(rows: JobRows, key: CallKey, usd: float = 1.0) -> None:
    with rows.store.begin() as tx:
        tx.llm.budgets.reserve_cost(key, tx.jobs.callers.read_payer(key.job_id), usd)


def level(rows: JobRows, scope: tuple[BudgetScope, str] = DAY) -> SpendingLevel:
    with rows.store.view() as tx:
        return tx.llm.budgets.read_level(scope)


def test_a_job_is_charged_to_its_agent_its_client_and_its_conversation(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        tx.jobs.update_job(key.job_id, client_id=3)
        assert tx.jobs.callers.read_payer(key.job_id) == Payer(agent_id=1, agent="ada", client_id=3)
        assert tx.jobs.callers.read_payer("nobody") == Payer()


def test_a_call_has_one_reservation_in_the_place_of_that_of_a_dead_attempt(rows: JobRows, key: CallKey) -> None:
    reserve(rows, key, 0.25)
    reserve(rows, key, 0.5)
    assert level(rows) == SpendingLevel(0, 0.5)


def test_whoever_reserves_learns_which_limit_was_used_up_before(rows: JobRows, key: CallKey) -> None:
    day, agent = BudgetLimit(BudgetScope.DAY, "", 1.0), BudgetLimit(BudgetScope.AGENT, "1", 0.5)
    other = CallKey(job_id=rows.add(), number=1)
    with rows.store.begin() as tx:
        payer = tx.jobs.callers.read_payer(key.job_id)
        assert tx.llm.budgets.reserve_cost(key, payer, 0.5, [day, agent]) is None, "the last of a budget may be had"
        assert tx.llm.budgets.reserve_cost(other, payer, 0.1, [day, agent]) == agent
        assert tx.llm.budgets.reserve_cost(other, payer, 0.1, [day]) is None, "its own reservation does not count"


def test_an_answer_puts_what_it_cost_in_the_place_of_what_was_reserved(rows: JobRows, key: CallKey) -> None:
    reserve(rows, key)
    assert level(rows) == level(rows, (BudgetScope.AGENT, "1")) == SpendingLevel(0, 1)
    with rows.store.begin() as tx:
        tx.llm.calls.store_answer(key, tx.llm.calls.record_sending(key, "digest", ESTIMATE), ANSWER)
    assert level(rows) == level(rows, (BudgetScope.AGENT, "1")) == SpendingLevel(0.5, 0)


def test_an_answer_of_unknown_price_gives_back_what_was_reserved(rows: JobRows, key: CallKey) -> None:
    reserve(rows, key)
    with rows.store.begin() as tx:
        tx.llm.calls.store_answer(key, tx.llm.calls.record_sending(key, "digest", ESTIMATE), response_of("hello"))
    assert level(rows) == SpendingLevel()


def test_an_attempt_that_was_not_the_last_leaves_the_reservation(rows: JobRows, key: CallKey) -> None:
    reserve(rows, key)
    with rows.store.begin() as tx:
        tx.llm.calls.record_interruption(key, tx.llm.calls.record_sending(key, "digest", ESTIMATE))
    assert level(rows) == SpendingLevel(0.125, 1)


def test_a_job_that_ends_gives_back_what_its_dead_process_had_reserved(rows: JobRows, key: CallKey) -> None:
    reserve(rows, key)
    reserve(rows, key.model_copy(update={"number": 2}))
    with rows.store.begin() as tx:
        tx.jobs.close_job(key.job_id, JobEnding(status=JobStatus.FAILED))
    assert level(rows) == SpendingLevel()


def test_a_call_settles_in_the_day_in_which_it_was_reserved(rows: JobRows, key: CallKey) -> None:
    reserve(rows, key)
    rows.clock.go(days=1)
    with rows.store.begin() as tx:
        tx.llm.calls.store_answer(key, tx.llm.calls.record_sending(key, "digest", ESTIMATE), ANSWER)
    assert level(rows) == SpendingLevel()
    rows.clock.go(days=-1)
    assert level(rows) == SpendingLevel(0.5, 0)


def test_a_limit_holds_for_a_day_and_for_its_own_subject(rows: JobRows, key: CallKey) -> None:
    mine, other = BudgetLimit(BudgetScope.AGENT, "1", 1.0), BudgetLimit(BudgetScope.AGENT, "2", 1.0)
    next_call = CallKey(job_id=rows.add(), number=1)
    reserve(rows, key)

    def exceeded(*limits: BudgetLimit) -> BudgetLimit | None:
        with rows.store.begin() as tx:
            payer = tx.jobs.callers.read_payer(key.job_id)
            found = tx.llm.budgets.reserve_cost(next_call, payer, 0.25, limits)
            tx.llm.budgets.release_reservation(next_call)
            return found

    assert exceeded(other, mine) is mine
    assert exceeded(other) is None
    rows.clock.go(days=1)
    assert exceeded(mine) is None


def test_adding_and_taking_away_leaves_nothing_behind(rows: JobRows) -> None:
    amounts = [0.1, 0.2, 0.7, 0.03]
    keys = [CallKey(job_id=rows.add(), number=1) for _ in amounts]
    for key, usd in zip(keys, amounts, strict=True):
        reserve(rows, key, usd)
    for key in keys:
        with rows.store.begin() as tx:
            tx.llm.budgets.release_reservation(key)
            tx.llm.budgets.release_reservation(key)
    assert level(rows) == SpendingLevel(0, 0)
