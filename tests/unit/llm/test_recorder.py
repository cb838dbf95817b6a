"""What leaves is what was committed, what comes back is kept, and each attempt ends in the books."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from maestro.domain.llm.accounts import AccountSource, AccountType, ModelAccount
from maestro.domain.llm.calls import BadRequest, CallEstimate, EmptyResponse, LLMCall, ModelTimeout
from maestro.domain.llm.models import Price
from maestro.domain.llm.prompts import CallKey, LLMRequest, PromptMessage, Role, ToolCall, ToolSpec, Usage
from maestro.llm.accounts import Estimates
from maestro.llm.middleware.recorder import Recorder
from maestro.llm.protocols import Account, LLMClient
from maestro.store.transaction import Transaction
from tests.support.answer_spool import answer_spool
from tests.support.job_rows import JobRows
from tests.support.llm_accounts import replay_guard
from tests.support.llm_fakes import Accounts, Held, Scripted, settled
from tests.support.llm_requests import request_of, response_of

MAIN = Account("main", "anthropic", "claude-haiku-4-5")
OTHER = Account("other", "openai", "gpt-4o")
PLAN = Account("plan", "anthropic", "claude-sonnet-4-6", AccountType.CLI)
ESTIMATES = Estimates(Accounts([MAIN, OTHER, PLAN]), {"anthropic/claude-haiku-4-5": Price(1000, 5000)}.get)
SEARCH = ToolSpec(name="search", description="Search.", parameters='{"type":"object"}')
CALL = ToolCall(id="call_1_0", name="search", arguments='{"q": "cats"}')
ASKED = (
    PromptMessage(role=Role.ASSISTANT, content="", tool_calls=(CALL,)),
    PromptMessage(role=Role.TOOL, content="cats are fine", call_id=CALL.id, tool="search", cache=True),
)
COSTLY = response_of("hello").model_copy(update={"cost_usd": 0.5, "tool_calls": (CALL,), "cache_write_tokens": 7})


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def request_(rows: JobRows) -> LLMRequest:
    """A request of the second round, on its way to the account main."""
    request = request_of()
    return request.model_copy(
        update={
            "key": CallKey(job_id=rows.add(), number=1),
            "account": "main",
            "model": "claude-haiku-4-5",
            "messages": (*request.messages, *ASKED),
            "tools": (SEARCH,),
        }
    )


def recorder(rows: JobRows, model: LLMClient) -> Recorder:
    return Recorder(model, rows.store, ESTIMATES, answer_spool(rows.store))


def calls(rows: JobRows, request: LLMRequest) -> list[LLMCall]:
    with rows.store.view() as tx:
        return list(tx.llm.calls.list_calls_of_job(request.key.job_id))


def states(rows: JobRows, request: LLMRequest) -> list[str]:
    """Return how the attempts ended, by their rows; the usage log must say the same."""
    with rows.store.view() as tx:
        noted = [row.state for row in tx.llm.usage.list_usage_of_job(request.key.job_id)]
    found = [call.state for call in calls(rows, request)]
    assert noted == found
    return [str(state) for state in found]


def add_main(rows: JobRows) -> None:
    """Put the account main into the store."""
    with rows.store.begin() as tx:
        account = ModelAccount(
            name="main",
            provider="anthropic",
            model="claude-haiku-4-5",
            source=AccountSource.CONFIGURATION,
            created_at=tx.now,
            updated_at=tx.now,
        )
        tx.llm.accounts.add_account(account)


async def cut_off(rows: JobRows, request: LLMRequest) -> None:
    """Let an attempt be cut off while its request is under way, as the death of its process does."""
    model = Held()
    call = asyncio.create_task(recorder(rows, model).complete(request))
    while not model.calls:
        await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_what_leaves_is_the_request_and_what_comes_back_is_kept(rows: JobRows, request_: LLMRequest) -> None:
    model = Scripted(COSTLY)
    assert await recorder(rows, model).complete(request_) == COSTLY
    assert model.asked == [request_]
    assert states(rows, request_) == ["answered"]
    held = await replay_guard(rows.store, Scripted()).complete(request_)
    assert held == COSTLY


async def test_an_answer_counts_for_its_account(rows: JobRows, request_: LLMRequest) -> None:
    add_main(rows)
    await recorder(rows, Scripted(COSTLY)).complete(request_)
    with rows.store.view() as tx:
        counted = tx.llm.accounts.get_account("main")
    assert (counted.calls, counted.spent_usd, counted.last_used_at) == (1, 0.5, rows.clock.now)


async def test_an_answer_that_comes_late_charges_its_account_once(rows: JobRows, request_: LLMRequest) -> None:
    add_main(rows)
    model = Held()
    call = asyncio.create_task(recorder(rows, model).complete(request_))
    while not model.calls:
        await settled()
    with rows.store.begin() as tx:
        tx.llm.calls.close_calls(request_.key.job_id)
        estimate = tx.llm.accounts.get_account("main").spent_usd
    assert estimate > 0
    model.end(0, COSTLY)
    await call
    with rows.store.view() as tx:
        main = tx.llm.accounts.get_account("main")
    assert main.calls == 1
    assert main.spent_usd == pytest.approx(0.5)


async def test_a_request_that_was_cut_off_is_sent_again_to_the_account_chosen_now(
    rows: JobRows, request_: LLMRequest
) -> None:
    await cut_off(rows, request_)
    now = request_.model_copy(
        update={"account": "other", "model": "gpt-4o", "messages": request_.messages[:2], "tools": (), "final": True}
    )
    model = Scripted(COSTLY)
    await recorder(rows, model).complete(now)
    assert model.asked == [request_.model_copy(update={"account": "other", "model": "gpt-4o"})]
    assert states(rows, request_) == ["interrupted", "answered"]
    assert [call.account for call in calls(rows, request_)] == ["main", "main"]


async def test_a_call_that_is_broken_off_before_its_request_leaves_costs_nothing(
    rows: JobRows, request_: LLMRequest
) -> None:
    estimates, model = Slow(), Held()
    call = asyncio.create_task(Recorder(model, rows.store, estimates, answer_spool(rows.store)).complete(request_))
    await asyncio.to_thread(estimates.begun.wait)
    call.cancel()
    await settled()
    estimates.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert model.calls == []
    assert states(rows, request_) == ["interrupted"]
    assert [(call.input_tokens, call.cost_usd) for call in calls(rows, request_)] == [(0, 0.0)]


async def test_a_call_that_is_broken_off_while_its_commit_is_refused_is_broken_off(
    rows: JobRows, request_: LLMRequest
) -> None:
    def refuse(_tx: Transaction) -> None:
        raise BadRequest("refused")

    estimates, model = Slow(), Held()
    refused = request_.model_copy(update={"on_send": refuse})
    call = asyncio.create_task(Recorder(model, rows.store, estimates, answer_spool(rows.store)).complete(refused))
    await asyncio.to_thread(estimates.begun.wait)
    call.cancel()
    await settled()
    estimates.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (model.calls, states(rows, request_)) == ([], [])


class Slow(Estimates):
    """Estimates that wait for the test."""

    def __init__(self) -> None:
        super().__init__(Accounts([MAIN]), {"anthropic/claude-haiku-4-5": Price(1000, 5000)}.get)
        self.begun, self.go_on = Event(), Event()

    def estimate_minimum(self, request: LLMRequest) -> CallEstimate:
        self.begun.set()
        self.go_on.wait()
        return super().estimate_minimum(request)


async def test_after_a_failure_the_request_is_made_anew(rows: JobRows, request_: LLMRequest) -> None:
    with pytest.raises(BadRequest):
        await recorder(rows, Scripted(BadRequest("no"))).complete(request_)
    mended = request_.model_copy(update={"messages": request_.messages[:2], "final": True})
    model = Scripted(COSTLY)
    await recorder(rows, model).complete(mended)
    assert model.asked == [mended]
    assert states(rows, request_) == ["failed", "answered"]


async def test_a_failure_is_kept_by_the_name_of_its_class(rows: JobRows, request_: LLMRequest) -> None:
    with pytest.raises(BadRequest):
        await recorder(rows, Scripted(BadRequest("no"))).complete(request_)
    (call,) = calls(rows, request_)
    assert (call.error, call.account, call.model, call.cost_usd) == ("BadRequest", "main", "claude-haiku-4-5", None)
    assert call.duration_ms is not None


async def test_an_answer_of_nothing_is_kept_with_what_it_cost(rows: JobRows, request_: LLMRequest) -> None:
    nothing = EmptyResponse("nothing")
    nothing.usage, nothing.cost_usd = Usage(input_tokens=90, cached_tokens=80), 0.125
    with pytest.raises(EmptyResponse):
        await recorder(rows, Scripted(nothing)).complete(request_)
    (call,) = calls(rows, request_)
    assert (call.state, call.input_tokens, call.cached_tokens, call.cost_usd) == ("failed", 90, 80, 0.125)
    assert states(rows, request_) == ["failed"]


async def test_an_answer_that_came_too_late_is_kept_with_what_reading_the_prompt_costs(
    rows: JobRows, request_: LLMRequest
) -> None:
    with pytest.raises(ModelTimeout):
        await recorder(rows, Scripted(ModelTimeout("too late"))).complete(request_)
    (call,) = calls(rows, request_)
    assert (call.state, call.error) == ("failed", "ModelTimeout")
    assert call.input_tokens > 0
    assert call.cost_usd == pytest.approx(call.input_tokens / 1000)


@pytest.mark.parametrize(
    ("account", "a_token"), [(MAIN, 0.001), (OTHER, None), (PLAN, 0)], ids=["priced", "unknown", "subscription"]
)
async def test_an_attempt_that_is_broken_off_is_kept_with_its_estimate(
    account: Account, a_token: float | None, rows: JobRows, request_: LLMRequest
) -> None:
    request_ = request_.model_copy(update={"account": account.name, "model": "claude-haiku-4-5"})
    await cut_off(rows, request_)
    (call,) = calls(rows, request_)
    assert states(rows, request_) == ["interrupted"]
    assert (call.provider, call.account) == (account.provider, account.name)
    assert call.input_tokens > 0
    assert call.cost_usd == (None if a_token is None else pytest.approx(call.input_tokens * a_token))
    assert call.duration_ms is not None
