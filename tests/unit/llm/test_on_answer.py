"""What a caller wants done in the transaction that keeps its answer is done with the answer, or not at all."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from maestro.domain.agents.agent import Agent
from maestro.domain.llm.models import Price
from maestro.domain.llm.prompts import CallKey, LLMRequest, LLMResponse
from maestro.domain.messages import Address
from maestro.llm.accounts import Estimates
from maestro.llm.middleware.recorder import Recorder
from maestro.llm.middleware.replay import SpooledAnswer
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.answer_spool import answer_spool
from tests.support.fresh_store import path_of
from tests.support.instance import until
from tests.support.job_rows import JobRows
from tests.support.llm_fakes import Accounts, Held, Scripted
from tests.support.llm_requests import request_of, response_of
from tests.support.locking import locked

ANSWER = response_of("an answer that was paid for")
ESTIMATES = Estimates(Accounts([]), dict[str, Price]().get)


@dataclass
class Caller:
    """A caller that writes a value with each answer; ``error`` is what it raises after that."""

    error: Exception | None = None
    answers: list[LLMResponse] = field(default_factory=list)

    def on_answer(self, tx: Transaction, response: LLMResponse) -> None:
        self.answers.append(response)
        tx.chat.reminders.record_reminder("ada", "message-1")
        if self.error is not None:
            raise self.error


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    rows.store.close()
    rows.store = Store(tmp_path / "maestro.db", rows.clock, busy_seconds=0.02)
    yield rows
    rows.store.close()


@pytest.fixture
def request_(rows: JobRows) -> LLMRequest:
    return request_of().model_copy(update={"key": CallKey(job_id=rows.add(), number=1)})


async def ask(rows: JobRows, request: LLMRequest, caller: Caller, model: LLMClient | None = None) -> LLMResponse:
    recorder = Recorder(model or Scripted(ANSWER), rows.store, ESTIMATES, answer_spool(rows.store))
    return await recorder.complete(request.model_copy(update={"on_answer": caller.on_answer}))


def states(rows: JobRows, request: LLMRequest) -> list[str]:
    with rows.store.view() as tx:
        return [str(call.state) for call in tx.llm.calls.list_calls_of_job(request.key.job_id)]


def written(rows: JobRows) -> bool:
    with rows.store.view() as tx:
        return tx.chat.reminders.is_due("ada", "message-1")


async def test_it_is_called_with_the_answer_in_the_transaction_that_keeps_it(
    rows: JobRows, request_: LLMRequest
) -> None:
    caller = Caller()
    assert await ask(rows, request_, caller) == ANSWER
    assert caller.answers == [ANSWER]
    assert (states(rows, request_), written(rows)) == (["answered"], True)


async def test_when_it_raises_only_what_it_did_is_rolled_back_and_the_log_says_so_once(
    rows: JobRows, request_: LLMRequest
) -> None:
    with capture_logs() as lines:
        assert await ask(rows, request_, Caller(ValueError("a secret"))) == ANSWER
    assert (states(rows, request_), written(rows)) == (["answered"], False)
    (line,) = [line for line in lines if line["event"] == "answer.callback_failed"]
    assert (line["job"], line["error"]) == (request_.key.job_id, "ValueError")
    assert "a secret" not in str(lines)


async def test_an_object_that_cannot_be_written_takes_nothing_else_along(rows: JobRows, request_: LLMRequest) -> None:
    def add_twice(tx: Transaction, _response: LLMResponse) -> None:
        tx.agents.save_agent(Agent(slug="ada", name="A second one", created_at=tx.now, updated_at=tx.now))

    recorder = Recorder(Scripted(ANSWER), rows.store, ESTIMATES, answer_spool(rows.store))
    assert await recorder.complete(request_.model_copy(update={"on_answer": add_twice})) == ANSWER
    assert states(rows, request_) == ["answered"]
    with rows.store.view() as tx:
        (agent,) = [agent for agent in tx.agents.list_agents() if agent.slug == "ada"]
    assert agent.name == "Ada"


async def test_a_row_that_the_store_refuses_takes_nothing_else_along(rows: JobRows, request_: LLMRequest) -> None:
    def add_again(tx: Transaction, _response: LLMResponse) -> None:
        tx.jobs.add_job(id=request_.key.job_id, **Address(platform="web", channel="general").model_dump())

    recorder = Recorder(Scripted(ANSWER), rows.store, ESTIMATES, answer_spool(rows.store))
    assert await recorder.complete(request_.model_copy(update={"on_answer": add_again})) == ANSWER
    assert states(rows, request_) == ["answered"]


async def test_a_commit_that_is_repeated_calls_it_anew_for_what_was_rolled_back(
    rows: JobRows, request_: LLMRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, model = Caller(), Held()
    call = asyncio.create_task(ask(rows, request_, caller, model))
    await until(lambda: model.open > 0)
    with locked(path_of(rows.store)):
        model.end(0, ANSWER)
        await until(lambda: rows.store.write_history.failures > 0)
    assert await call == ANSWER
    assert caller.answers == [ANSWER], "a transaction that could not begin has not called it"
    assert (states(rows, request_), written(rows)) == (["answered"], True)


async def test_it_never_leaves_the_process(rows: JobRows, request_: LLMRequest) -> None:
    asked = request_.model_copy(update={"on_answer": Caller().on_answer})
    held = SpooledAnswer(attempt=1, request=asked, response=ANSWER)
    assert "on_answer" not in held.model_dump_json()
    assert SpooledAnswer.model_validate_json(held.model_dump_json()).request.on_answer is None


async def test_it_is_not_called_for_an_answer_that_is_in_the_store_already(rows: JobRows, request_: LLMRequest) -> None:
    caller, model = Caller(), Held()
    call = asyncio.create_task(ask(rows, request_, caller, model))
    await until(lambda: model.open > 0)
    with rows.store.begin() as tx:
        tx.llm.calls.store_answer(request_.key, 1, ANSWER)  # as another process does that found the spool file
    model.end(0, ANSWER)
    await call
    assert (caller.answers, written(rows)) == ([], False)
