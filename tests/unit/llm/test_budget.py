"""A budget is overspent by at most one call's estimate, whoever calls at once and whatever dies."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from maestro.domain.agents.edits import AgentChange
from maestro.domain.errors import WaitReason
from maestro.domain.jobs.job import JobEnding, JobStatus, Wait
from maestro.domain.llm.accounts import AccountSource, ModelAccount
from maestro.domain.llm.budgets import BudgetScope, ClientChange, NewClient, SpendingLevel
from maestro.domain.llm.calls import BudgetExceeded, ProviderUnavailable
from maestro.domain.llm.models import Price
from maestro.domain.llm.prompts import CallKey, LLMRequest, LLMResponse
from maestro.domain.settings.llm import BudgetSettings
from maestro.llm.accounts import Estimates
from maestro.llm.middleware.recorder import RESERVED_WAIT, Budget, Recorder
from maestro.llm.protocols import Account, LLMClient
from maestro.store.store import Store
from tests.support.answer_spool import answer_spool
from tests.support.job_rows import Clock, JobRows
from tests.support.llm_accounts import reader
from tests.support.llm_fakes import Accounts, Held, Scripted, settled
from tests.support.llm_requests import request_of, response_of

ESTIMATE = 0.1
"""US dollars of one call with the dear model: its prompt is free, its longest answer has 100 tokens."""
PRICES = {"anthropic/dear": Price(0, 1000), "openai/cheap": Price(0, 1), "free/nothing": Price(0, 0)}
ACCOUNTS = (("anthropic", "dear"), ("openai", "cheap"), ("free", "nothing"), ("x", "unpriced"))
DAY = (BudgetScope.DAY, "")
READY = "ready\n"
DIES = "--die-inside-the-call"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        for place, (provider, model) in enumerate(ACCOUNTS):
            tx.llm.accounts.add_account(
                ModelAccount(
                    name=provider,
                    provider=provider,
                    model=model,
                    priority=place,
                    source=AccountSource.CONFIGURATION,
                    created_at=tx.now,
                    updated_at=tx.now,
                )
            )
    yield rows
    rows.store.close()


def request_for(job_id: str, model: str = "anthropic/dear") -> LLMRequest:
    return request_of(model=model).model_copy(update={"key": CallKey(job_id=job_id, number=1), "account": "anthropic"})


def guarded(store: Store, model: LLMClient, budgets: BudgetSettings) -> Budget:
    """Return a model behind its budgets, with the recorder that settles."""
    estimates = Estimates(Accounts([Account("anthropic", "anthropic", "dear")]), PRICES.get)
    return Budget(
        Recorder(model, store, estimates, answer_spool(store)), reader(store, budgets=budgets), store, estimates
    )


def level(rows: JobRows, scope: tuple[BudgetScope, str] = DAY) -> SpendingLevel:
    with rows.store.view() as tx:
        return tx.llm.budgets.read_level(scope)


def spend(rows: JobRows, usd: float) -> str:
    """Let a job of the agent's have cost something today; return its id."""
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.llm.budgets.add_cost(CallKey(job_id=job_id, number=1), usd)
    return job_id


def costing(usd: float | None) -> LLMResponse:
    return response_of("hello").model_copy(update={"cost_usd": usd})


# One call


async def test_a_call_reserves_its_estimate_and_settles_what_it_cost(rows: JobRows) -> None:
    model = Held()
    call = asyncio.create_task(guarded(rows.store, model, BudgetSettings(day_usd=1)).complete(request_for(rows.add())))
    while not model.calls:
        await settled()
    assert level(rows) == level(rows, (BudgetScope.AGENT, "1")) == SpendingLevel(0, ESTIMATE)
    model.end(0, costing(0.25))
    await call
    assert level(rows) == level(rows, (BudgetScope.AGENT, "1")) == SpendingLevel(0.25, 0)


async def test_what_failover_may_come_to_is_what_is_reserved(rows: JobRows) -> None:
    model = Held()
    cheap = request_for(rows.add(), "openai/cheap")
    call = asyncio.create_task(guarded(rows.store, model, BudgetSettings(day_usd=1)).complete(cheap))
    while not model.calls:
        await settled()
    assert level(rows) == SpendingLevel(0, ESTIMATE), "the dear model answers when the cheap one cannot"
    model.end(0, costing(0.001))
    await call
    assert level(rows) == SpendingLevel(0.001, 0)


async def test_a_call_is_let_through_while_anything_is_left(rows: JobRows) -> None:
    spend(rows, 0.999)
    await guarded(rows.store, Scripted(costing(0.125)), BudgetSettings(day_usd=1)).complete(request_for(rows.add()))
    assert level(rows).spent_usd == pytest.approx(1.124)


async def test_beyond_the_limit_nobody_is_asked_and_people_are_told_why(rows: JobRows) -> None:
    spend(rows, 1)
    with pytest.raises(BudgetExceeded, match="the daily budget of all calls, 1 US dollars") as caught:
        await guarded(rows.store, Scripted(), BudgetSettings(day_usd=1)).complete(request_for(rows.add()))
    with rows.store.view() as tx:
        midnight = datetime.combine(tx.now.date() + timedelta(days=1), time(), UTC)
    assert (caught.value.reason, caught.value.wake_at) == (WaitReason.BUDGET, midnight)
    assert level(rows) == SpendingLevel(1, 0)


async def test_what_is_only_reserved_is_waited_for_a_moment(rows: JobRows) -> None:
    model, budgets = Held(), BudgetSettings(day_usd=ESTIMATE)
    call = asyncio.create_task(guarded(rows.store, model, budgets).complete(request_for(rows.add())))
    while not model.calls:
        await settled()
    with pytest.raises(BudgetExceeded, match="fully reserved") as caught:
        await guarded(rows.store, Scripted(), budgets).complete(request_for(rows.add()))
    with rows.store.view() as tx:
        assert (caught.value.reason, caught.value.wake_at) == (WaitReason.ACCOUNT, tx.now + RESERVED_WAIT)
    model.end(0, costing(0.01))
    await call
    await guarded(rows.store, Scripted(costing(0.01)), budgets).complete(request_for(rows.add()))


def test_whoever_raises_a_budget_wakes_what_waits_for_it(rows: JobRows) -> None:
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.users.clients.create_client(NewClient(name="Acme", slug="acme", daily_budget_usd=1), "operator")

    def raise_agents() -> None:
        with rows.store.begin() as tx:
            tx.agents.change(tx.agents.get(1), AgentChange(daily_budget_usd=9), "operator")

    def raise_clients() -> None:
        with rows.store.begin() as tx:
            tx.users.clients.change_client(
                tx.users.clients.get_client("acme"), ClientChange(daily_budget_usd=9), "operator"
            )

    for raise_it in (raise_agents, raise_clients):
        with rows.store.begin() as tx:
            tx.jobs.mark_started(job_id)
            tx.jobs.park_job(job_id, Wait(reason=WaitReason.BUDGET, wake_at=tx.now + timedelta(hours=9)))
            assert not tx.jobs.has_due()
        raise_it()
        with rows.store.begin() as tx:
            tx.jobs.resume_due()
            assert tx.jobs.read_status(job_id) is JobStatus.PENDING, raise_it.__name__


async def test_a_limit_ends_with_its_day(rows: JobRows) -> None:
    spend(rows, 1)
    rows.clock.go(days=1)
    await guarded(rows.store, Scripted(costing(0.5)), BudgetSettings(day_usd=1)).complete(request_for(rows.add()))
    assert level(rows) == SpendingLevel(0.5, 0)


async def test_a_call_that_fails_gives_back_what_it_had_reserved(rows: JobRows) -> None:
    client = guarded(rows.store, Scripted(ProviderUnavailable("down")), BudgetSettings(day_usd=1))
    with pytest.raises(ProviderUnavailable):
        await client.complete(request_for(rows.add()))
    assert level(rows) == SpendingLevel()


async def test_a_call_that_is_cancelled_gives_back_what_it_had_reserved(rows: JobRows) -> None:
    model = Held()
    call = asyncio.create_task(guarded(rows.store, model, BudgetSettings(day_usd=1)).complete(request_for(rows.add())))
    while not model.calls:
        await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert level(rows) == SpendingLevel()


@pytest.mark.parametrize("model", ["free/nothing", "x/unpriced"])
async def test_what_is_free_or_has_no_known_price_reserves_nothing(model: str, rows: JobRows) -> None:
    held = Held()
    client = guarded(rows.store, held, BudgetSettings(day_usd=1))
    call = asyncio.create_task(client.complete(request_for(rows.add(), model)))
    while not held.calls:
        await settled()
    assert level(rows) == SpendingLevel()
    held.end(0, costing(None))
    await call
    assert level(rows) == SpendingLevel()


@pytest.mark.parametrize("model", ["free/nothing", "x/unpriced"])
async def test_beyond_the_limit_nothing_is_answered_whatever_it_costs(model: str, rows: JobRows) -> None:
    spend(rows, 1)
    with pytest.raises(BudgetExceeded):
        await guarded(rows.store, Scripted(), BudgetSettings(day_usd=1)).complete(request_for(rows.add(), model))


async def test_without_any_limit_only_the_recorder_writes(rows: JobRows) -> None:
    changes: list[str] = []
    store = Noted(rows.store, changes)
    await guarded(store, Scripted(costing(0.5)), BudgetSettings(day_usd=0)).complete(request_for(rows.add()))
    assert changes == ["begin", "begin"]


class Noted(Store):
    """A store that notes its writing transactions."""

    def __init__(self, store: Store, changes: list[str]) -> None:
        self.__dict__.update(vars(store))
        self._changes = changes

    def begin(self, **scope: Any):  # type: ignore[no-untyped-def]
        self._changes.append("begin")
        return super().begin(**scope)


# The cheaper model


async def test_beyond_an_agents_limit_the_cheaper_model_is_asked(rows: JobRows) -> None:
    spend(rows, 0.5)
    model, budgets = (
        Scripted(costing(0.01)),
        BudgetSettings(day_usd=10, agent_day_usd=0.5, fallback_model="openai/cheap", on_limit="fallback"),
    )
    request = request_for(rows.add()).model_copy(update={"fallbacks": ("anthropic/dear",)})
    await guarded(rows.store, model, budgets).complete(request)
    assert [(asked.model, asked.fallbacks, asked.exact) for asked in model.asked] == [("openai/cheap", (), True)]
    assert level(rows).spent_usd == pytest.approx(0.51)


async def test_a_cheaper_model_that_no_account_has_is_none(rows: JobRows) -> None:
    spend(rows, 0.5)
    budgets = BudgetSettings(day_usd=0, agent_day_usd=0.5, fallback_model="gemini/cheap", on_limit="fallback")
    with pytest.raises(BudgetExceeded, match="of agent ada"):
        await guarded(rows.store, Scripted(), budgets).complete(request_for(rows.add()))


async def test_beyond_the_limit_of_everybody_no_cheaper_model_helps(rows: JobRows) -> None:
    spend(rows, 0.5)
    budgets = BudgetSettings(day_usd=0.5, agent_day_usd=0.5, fallback_model="openai/cheap", on_limit="fallback")
    with pytest.raises(BudgetExceeded):
        await guarded(rows.store, Scripted(), budgets).complete(request_for(rows.add()))


async def test_without_a_cheaper_model_an_agents_limit_refuses_only_the_agent(rows: JobRows) -> None:
    spend(rows, 0.5)
    budgets = BudgetSettings(day_usd=0, agent_day_usd=0.5)
    with pytest.raises(BudgetExceeded, match="of agent ada"):
        await guarded(rows.store, Scripted(), budgets).complete(request_for(rows.add()))
    other = rows.add(agent=None)
    await guarded(rows.store, Scripted(costing(0.01)), budgets).complete(request_for(other))


# Many at once, and deaths


async def calls_at_once(store: Store, jobs: list[str], usd: float = 1.0) -> list[LLMResponse | BaseException]:
    """Make every call at once, each costing its estimate."""

    class Model:
        async def complete(self, _: LLMRequest) -> LLMResponse:
            await settled()
            return costing(ESTIMATE)

    client = guarded(store, Model(), BudgetSettings(day_usd=usd))
    return await asyncio.gather(*(client.complete(request_for(job)) for job in jobs), return_exceptions=True)


async def test_fifty_at_once_overspend_by_at_most_one_estimate(rows: JobRows) -> None:
    jobs = [rows.add() for _ in range(50)]
    ended = await calls_at_once(rows.store, jobs)
    refused = [end for end in ended if isinstance(end, BudgetExceeded)]
    assert len(refused) == 40
    assert len(ended) - len(refused) == sum(isinstance(end, LLMResponse) for end in ended)
    assert level(rows).spent_usd == pytest.approx(1.0)
    assert level(rows).reserved_usd == 0


def test_fifty_from_two_processes_overspend_by_at_most_one_estimate(rows: JobRows, tmp_path: Path) -> None:
    jobs = [rows.add() for _ in range(50)]
    halves = [other_process(tmp_path, *half) for half in (jobs[:25], jobs[25:])]
    for half in halves:
        assert half.stdout is not None
        assert half.stdout.readline() == READY
    answered = [int(half.communicate("go\n", timeout=60)[0]) for half in halves]
    assert [half.returncode for half in halves] == [0, 0]
    assert sum(answered) == 10
    assert level(rows).spent_usd == pytest.approx(1.0)
    assert level(rows).reserved_usd == 0


def test_a_process_that_is_killed_inside_a_call_leaves_its_reservation_to_the_repeat(
    rows: JobRows, tmp_path: Path
) -> None:
    job_id = rows.add()
    dead = other_process(tmp_path, DIES, job_id)
    dead.communicate("go\n", timeout=60)
    assert dead.returncode == -signal.SIGKILL
    assert level(rows) == SpendingLevel(0, ESTIMATE)
    (answer,) = asyncio.run(calls_at_once(rows.store, [job_id], usd=ESTIMATE))
    assert isinstance(answer, LLMResponse)
    assert level(rows) == SpendingLevel(ESTIMATE, 0)


def test_a_process_that_is_killed_inside_a_call_leaves_nothing_reserved_when_the_job_ends(
    rows: JobRows, tmp_path: Path
) -> None:
    job_id = rows.add()
    other_process(tmp_path, DIES, job_id).communicate("go\n", timeout=60)
    with rows.store.begin() as tx:
        tx.jobs.close_job(job_id, JobEnding(status=JobStatus.FAILED))
    assert level(rows) == SpendingLevel()
    with rows.store.view() as tx:
        assert [row.state for row in tx.llm.usage.list_usage_of_job(job_id)] == ["interrupted"]


def other_process(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Make the calls of these jobs in a process of its own, when told to; it writes how many were answered."""
    command = [sys.executable, "-m", "tests.unit.llm.test_budget", str(folder), *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def main(folder: Path, words: list[str]) -> None:
    """Be that process."""
    store = Store(folder / "maestro.db", Clock())
    if words[0] == DIES:
        asyncio.run(guarded(store, Dies(), BudgetSettings(day_usd=1)).complete(request_for(words[1])))
    sys.stdout.write(READY)
    sys.stdout.flush()
    sys.stdin.readline()
    ended = asyncio.run(calls_at_once(store, words))
    print(sum(isinstance(end, LLMResponse) for end in ended))


class Dies:
    """A model whose caller is killed while it waits."""

    async def complete(self, _: LLMRequest) -> LLMResponse:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    main(Path(sys.argv[1]), sys.argv[2:])
