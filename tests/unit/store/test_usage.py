"""Every request to an account leaves one row of usage, however it ends, and counts once as spent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.jobs.job import JobEnding, JobStatus
from maestro.domain.llm.accounts import AccountSource, ModelAccount
from maestro.domain.llm.budgets import BudgetScope, SpendingLevel
from maestro.domain.llm.calls import CallEstimate, CallState, Expense
from maestro.domain.llm.prompts import CallKey, LLMResponse, ToolCall, Usage
from maestro.domain.llm.usage import UsageRow
from maestro.store.store import Store
from tests.support.job_rows import JobRows

ESTIMATE = CallEstimate("anthropic", "claude-haiku-4-5", 1000, 0.25, "main")
ANSWER = LLMResponse(
    content="hello",
    tool_calls=(ToolCall(id="call_1_0", name="search", arguments="{}"),),
    model="claude-haiku-4-5",
    provider="anthropic",
    account="main",
    input_tokens=1100,
    output_tokens=30,
    cached_tokens=800,
    cache_write_tokens=100,
    cost_usd=0.5,
    duration_ms=900,
)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def key(rows: JobRows) -> CallKey:
    """A call of a job with an agent, a client and no conversation."""
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, client_id=5)
    return CallKey(job_id=job_id, number=1)


def send(rows: JobRows, key: CallKey) -> int:
    with rows.store.begin() as tx:
        return tx.llm.calls.record_sending(key, "digest", ESTIMATE)


def answer(rows: JobRows, key: CallKey, attempt: int, response: LLMResponse = ANSWER) -> None:
    with rows.store.begin() as tx:
        tx.llm.calls.store_answer(key, attempt, response)


def usage(store: Store, key: CallKey) -> list[UsageRow]:
    with store.view() as tx:
        return list(tx.llm.usage.list_usage_of_job(key.job_id))


def spent(store: Store, scope: BudgetScope = BudgetScope.DAY, subject: str = "") -> SpendingLevel:
    with store.view() as tx:
        return tx.llm.budgets.read_level((scope, subject))


def test_an_answer_leaves_a_row_with_all_it_took_and_whom_it_is_charged_to(rows: JobRows, key: CallKey) -> None:
    answer(rows, key, send(rows, key))
    (row,) = usage(rows.store, key)
    assert row.model_dump(exclude={"id"}) == {
        "at": rows.clock.now,
        "job_id": key.job_id,
        "purpose": "answer",
        "number": 1,
        "attempt": 1,
        "agent_id": 1,
        "client_id": 5,
        "conversation_id": None,
        "provider": "anthropic",
        "model": "claude-haiku-4-5",
        "account": "main",
        "state": CallState.ANSWERED,
        "input_tokens": 1100,
        "output_tokens": 30,
        "cached_tokens": 800,
        "cost_usd": 0.5,
        "duration_ms": 900,
        "error": "",
    }


def test_what_it_cost_counts_for_everybody_and_for_each_who_pays(rows: JobRows, key: CallKey) -> None:
    answer(rows, key, send(rows, key))
    paying = ((BudgetScope.DAY, ""), (BudgetScope.AGENT, "1"), (BudgetScope.CLIENT, "5"))
    assert [spent(rows.store, *scope).spent_usd for scope in paying] == [0.5, 0.5, 0.5]


def test_a_failure_leaves_a_row_of_what_it_took(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        tx.llm.calls.record_failure(
            key, tx.llm.calls.record_sending(key, "digest", ESTIMATE), "RateLimited", Expense(duration_ms=12)
        )
        nothing = Expense(Usage(input_tokens=900, output_tokens=4), 0.125, 40)
        tx.llm.calls.record_failure(key, tx.llm.calls.record_sending(key, "digest", ESTIMATE), "EmptyResponse", nothing)
    seen = [
        (row.error, row.input_tokens, row.output_tokens, row.cost_usd, row.duration_ms)
        for row in usage(rows.store, key)
    ]
    assert seen == [("RateLimited", 0, 0, None, 12), ("EmptyResponse", 900, 4, 0.125, 40)]
    assert spent(rows.store).spent_usd == 0.125


def test_an_attempt_whose_process_died_is_found_by_the_next_one(rows: JobRows, key: CallKey) -> None:
    send(rows, key)
    answer(rows, key, send(rows, key))
    seen = [(row.attempt, row.state, row.input_tokens, row.cost_usd) for row in usage(rows.store, key)]
    assert seen == [(1, "interrupted", 1000, 0.25), (2, "answered", 1100, 0.5)]
    assert spent(rows.store).spent_usd == 0.75


def test_an_attempt_whose_process_died_is_found_at_the_end_of_its_job(rows: JobRows, key: CallKey) -> None:
    send(rows, key)
    with rows.store.begin() as tx:
        tx.jobs.close_job(key.job_id, JobEnding(status=JobStatus.CANCELLED))
    assert [(row.state, row.cost_usd) for row in usage(rows.store, key)] == [("interrupted", 0.25)]
    assert spent(rows.store).spent_usd == 0.25
    with rows.store.begin() as tx:
        tx.jobs.close_job(key.job_id, JobEnding(status=JobStatus.CANCELLED))
    assert len(usage(rows.store, key)) == 1


def test_an_answer_that_comes_after_it_was_given_up_counts_once(rows: JobRows, key: CallKey) -> None:
    first, second = send(rows, key), send(rows, key)
    answer(rows, key, first)
    assert [(row.attempt, row.state, row.cost_usd) for row in usage(rows.store, key)] == [(1, "answered", 0.5)]
    assert spent(rows.store).spent_usd == 0.5
    answer(rows, key, second)
    assert [row.attempt for row in usage(rows.store, key)] == [1, 2]
    assert spent(rows.store).spent_usd == 1.0


def test_what_an_account_spent_is_what_its_rows_say(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        for name in ("main", "other"):
            row = ModelAccount(
                name=name,
                provider="anthropic",
                model="claude-haiku-4-5",
                source=AccountSource.API,
                created_at=tx.now,
                updated_at=tx.now,
            )
            tx.llm.accounts.add_account(row)
    empty, died, unsent = send(rows, key), send(rows, key), send(rows, key)
    assert account(rows, key) == (0.5, 0), "the first two were taken for dead"
    with rows.store.begin() as tx:
        tx.llm.calls.record_failure(key, empty, "EmptyResponse", Expense(Usage(input_tokens=900), 0.125, 40))
        tx.llm.calls.record_interruption(key, unsent, 10)
    assert account(rows, key) == (0.125 + 0.25 + 0.25, 0)
    with rows.store.begin() as tx:
        tx.llm.calls.record_unsent(key, unsent)
        tx.llm.calls.record_failure(key, died, "RateLimited", Expense())
    assert account(rows, key) == (0.125, 0)
    last = send(rows, key)
    with rows.store.begin() as tx:
        tx.llm.accounts.record_success("main", "claude-haiku-4-5", tx.llm.calls.store_answer(key, last, ANSWER))
    assert account(rows, key) == (0.625, 1)
    with rows.store.view() as tx:
        assert tx.llm.accounts.get_account("other").spent_usd == 0


def account(rows: JobRows, key: CallKey) -> tuple[float, int]:
    """Return what the account has spent, which is what its rows and the budgets say, and how often it answered."""
    with rows.store.view() as tx:
        main = tx.llm.accounts.get_account("main")
    assert main.spent_usd == sum(row.cost_usd or 0.0 for row in usage(rows.store, key)) == spent(rows.store).spent_usd
    return main.spent_usd, main.calls


def test_an_unknown_price_is_not_counted_and_not_nothing(rows: JobRows, key: CallKey) -> None:
    answer(rows, key, send(rows, key), ANSWER.model_copy(update={"cost_usd": None}))
    assert [row.cost_usd for row in usage(rows.store, key)] == [None]
    assert spent(rows.store) == SpendingLevel()


def test_an_answer_is_given_back_as_it_was_kept(rows: JobRows, key: CallKey) -> None:
    answer(rows, key, send(rows, key))
    with rows.store.view() as tx:
        call = tx.llm.calls.get_answer(key)
    assert (call.cached_tokens, call.cache_write_tokens, call.tool_calls) == (
        800,
        100,
        '[{"id":"call_1_0","name":"search","arguments":"{}"}]',
    )
