"""What one call asks of the store and of threads on its way through the whole chain, counted exactly."""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

from maestro.bootstrap.models import Models, build_chain
from maestro.bootstrap.tools import build_redaction
from maestro.domain.agent_chat import HUMAN
from maestro.domain.llm.budgets import BudgetScope, SpendingLevel
from maestro.domain.llm.calls import BudgetExceeded, EmptyResponse, RateLimited
from maestro.domain.llm.models import ModelTable
from maestro.domain.llm.prompts import CallKey, LLMRequest, LLMResponse
from maestro.llm.litellm_client import LiteLLMLibrary
from maestro.llm.middleware.limits import StopMonitor
from maestro.llm.middleware.replay import UNREAD_POSTS, ReplayGuard
from maestro.llm.middleware.request_changes import advance_chat_cursor
from maestro.llm.protocols import LLMClient
from maestro.settings import Settings
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.answer_spool import answer_spool
from tests.support.fresh_store import path_of
from tests.support.job_rows import JobRows
from tests.support.llm_accounts import book, row
from tests.support.llm_fakes import Scripted
from tests.support.llm_requests import request_of, response_of

Result = TypeVar("Result")

ANSWER = response_of("hello").model_copy(update={"cost_usd": 0.25})
LIMITED = {"dayUsd": 1}
MOST_CALLS = 110
"""Calls of Python functions of the chain, and resumptions of its coroutines, for one call of a model; a ratchet."""


@dataclass
class Costs:
    """How often something was done since the last look."""

    views: int = 0
    writes: int = 0
    hops: int = 0

    def take(self) -> tuple[int, int, int]:
        """Return the counts, and begin anew."""
        counts = self.views, self.writes, self.hops
        self.views = self.writes = self.hops = 0
        return counts


class Unwatched(StopMonitor):
    """Looks for no stop: the looks are shared by a process, and no cost of a call."""

    async def run_until_stopped(self, job_id: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what the work returns."""
        return await work


class CountingStore(Store):
    """A store that counts its transactions; ``rival`` writes once, just before the next of them that writes."""

    costs: Costs
    rival: Callable[[Transaction], None] | None = None

    @contextmanager
    def view(self, **options: bool) -> Iterator[Transaction]:
        self.costs.views += 1
        with super().view(**options) as tx:
            yield tx

    @contextmanager
    def begin(self, **scope: Any) -> Iterator[Transaction]:
        self.costs.writes += 1
        rival, self.rival = self.rival, None
        if rival is not None:
            with super().begin() as tx:
                rival(tx)
        with super().begin(**scope) as tx:
            yield tx


class CountingThreads(ThreadPoolExecutor):
    """Threads that count what they are given to do."""

    def __init__(self, costs: Costs) -> None:
        super().__init__(4)
        self._costs = costs

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._costs.hops += 1
        return super().submit(fn, *args, **kwargs)


@dataclass
class Process:
    """A process with two accounts, of which the first is asked first."""

    rows: JobRows
    store: CountingStore
    costs: Costs

    def chain(self, model: LLMClient, **budgets: object) -> ReplayGuard:
        """Return the whole chain around a model; must be called on the event loop."""
        folder = path_of(self.store).parent
        live = LiveSettings.from_fixed(Settings.model_validate({"dataDir": folder, "budgets": budgets}))
        accounts = book(self.store, [row("claude"), row("gpt")])
        library, answers = LiteLLMLibrary(lambda: 0), answer_spool(self.store, advance_chat_cursor)
        models = Models(model, _ready, accounts, ModelTable(), library, answers, False, "", _closed)
        client = build_chain(models, self.store, build_redaction(live), Unwatched(self.store, lambda: 3600))
        asyncio.get_running_loop().set_default_executor(CountingThreads(self.costs))
        self.costs.take()
        return client

    def request(self) -> LLMRequest:
        """Return the first call of a new job of an agent that is told what others post."""
        job_id = self.rows.add()
        self.costs.take()
        return request_of().model_copy(
            update={"key": CallKey(job_id=job_id, number=1), "agent": "ada", "role": "assistant"}
        )

    def level(self) -> SpendingLevel:
        """Return what is spent and reserved today."""
        with self.store.view() as tx:
            return tx.llm.budgets.read_level((BudgetScope.DAY, ""))


async def _ready(_request: LLMRequest) -> None:
    """Be ready."""


async def _closed() -> None:
    """Have nothing to close."""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    rows = JobRows.at(tmp_path)
    rows.store.close()
    costs = Costs()
    store = rows.store = CountingStore(tmp_path / "maestro.db", rows.clock)
    store.costs = costs
    yield Process(rows, store, costs)
    store.close()


async def test_a_plain_call_reads_once_and_writes_twice(process: Process) -> None:
    client, request = process.chain(Scripted(ANSWER)), process.request()
    assert await client.complete(request) == ANSWER
    assert process.costs.take() == (1, 2, 3)


async def test_a_plain_call_runs_few_functions_of_the_chain(process: Process) -> None:
    client, request = process.chain(Scripted(ANSWER, ANSWER), **LIMITED), process.request()
    await client.complete(process.request())
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/maestro/llm/" in frame.f_code.co_filename:
            calls[frame.f_code.co_qualname] += 1

    asyncio.get_running_loop().set_default_executor(CountingThreads(process.costs))
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        await client.complete(request)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert calls.total() <= MOST_CALLS, calls.most_common()


async def test_a_request_that_is_built_from_the_store_shares_its_view(process: Process) -> None:
    client, request = process.chain(Scripted(ANSWER), **LIMITED), process.request()

    def built() -> LLMRequest:
        with client.open_view() as view:
            agent = view.tx.jobs.callers.read_payer(request.key.job_id).agent
            return view.add_snapshot(request.model_copy(update={"agent": agent}))

    assert await client.complete(built()) == ANSWER
    assert process.costs.take() == (1, 2, 2)
    assert await client.complete(built()) == ANSWER, "it is held"
    assert process.costs.take() == (1, 0, 0)


async def test_a_budget_adds_neither_a_read_nor_a_write(process: Process) -> None:
    model = Scripted(ANSWER)
    client, request = process.chain(model, **LIMITED), process.request()
    await client.complete(request)
    assert process.costs.take() == (1, 2, 3)
    assert process.level() == SpendingLevel(0.25, 0)


async def test_posts_and_a_reminder_add_nothing(process: Process) -> None:
    with process.store.begin() as tx:
        tx.chat.add_post(HUMAN, "tea is ready")
    model = Scripted(ANSWER)
    client, request = process.chain(model), process.request()
    with process.store.begin() as tx:
        tx.chat.reminders.record_reminder("ada", request.key.job_id)
    process.costs.take()
    await client.complete(request)
    assert process.costs.take() == (1, 2, 3)
    (asked,) = model.asked
    assert (asked.reminded, "tea is ready" in asked.messages[-1].content) == (True, True)


async def test_more_posts_than_a_snapshot_has_take_one_more_read(process: Process) -> None:
    with process.store.begin() as tx:
        for number in range(UNREAD_POSTS + 1):
            tx.chat.add_post(HUMAN, f"post {number}")
    model = Scripted(ANSWER)
    client, request = process.chain(model), process.request()
    await client.complete(request)
    assert process.costs.take() == (2, 2, 4)
    assert f"post {UNREAD_POSTS}" in model.asked[0].messages[-1].content


async def test_an_answer_that_is_held_is_all_that_is_read(process: Process) -> None:
    client, request = process.chain(Scripted(ANSWER)), process.request()
    await client.complete(request)
    process.costs.take()
    assert await client.complete(request) == ANSWER
    assert process.costs.take() == (1, 0, 1)


async def test_a_failover_reads_again_before_the_second_account(process: Process) -> None:
    model = Scripted(RateLimited("limited"), ANSWER)
    client, request = process.chain(model, **LIMITED), process.request()
    await client.complete(request)
    # Request, its failure, what that means for the account; then request and answer of the second.
    assert process.costs.take() == (2, 5, 7)
    assert [asked.account for asked in model.asked] == ["claude", "gpt"]
    assert process.level() == SpendingLevel(0.25, 0), "both attempts have one reservation"


async def test_an_attempt_after_another_one_reads_what_was_posted_meanwhile(process: Process) -> None:
    class Posting(Scripted):
        """A model while which somebody posts."""

        async def complete(self, request: LLMRequest) -> LLMResponse:
            with process.rows.store.begin() as tx:
                tx.chat.add_post(HUMAN, f"post {len(self.asked)}")
            return await super().complete(request)

    model = Posting(EmptyResponse("nothing"), ANSWER)
    client, request = process.chain(model), process.request()
    await client.complete(request)
    assert ["post 0" in str(asked.messages) for asked in model.asked] == [False, True]


async def test_of_two_calls_that_read_the_last_of_a_budget_one_is_refused_when_it_would_leave(process: Process) -> None:
    model = Scripted()
    client, request = process.chain(model, **LIMITED), process.request()
    rival = process.request().key
    process.store.rival = lambda tx: tx.llm.budgets.add_cost(rival, 1)
    with pytest.raises(BudgetExceeded, match="used up") as caught:
        await client.complete(request)
    assert caught.value.__context__ is None
    assert model.asked == []
    assert process.level() == SpendingLevel(1, 0)
    with process.store.view() as tx:
        assert tx.llm.calls.list_calls_of_job(request.key.job_id) == []
