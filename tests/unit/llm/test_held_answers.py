"""An answer that is paid for outlives a store that cannot be written, and the process that holds it."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from maestro.domain.llm.calls import LLMCall, ProviderUnavailable
from maestro.domain.llm.models import Price
from maestro.domain.llm.prompts import CallKey, LLMRequest, LLMResponse
from maestro.llm.accounts import Estimates
from maestro.llm.middleware import replay
from maestro.llm.middleware.recorder import Recorder
from maestro.llm.middleware.replay import FOLDER, AnswerSpool, ReplayGuard, SpooledAnswer
from maestro.llm.protocols import Account
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.answer_spool import answer_spool
from tests.support.fresh_store import path_of
from tests.support.instance import until
from tests.support.job_rows import JobRows
from tests.support.llm_accounts import reader, replay_guard
from tests.support.llm_fakes import Accounts, Held, Scripted
from tests.support.llm_requests import request_of, response_of
from tests.support.locking import locked

MAIN = Account("main", "anthropic", "claude-haiku-4-5")
ESTIMATES = Estimates(Accounts([MAIN]), {"anthropic/claude-haiku-4-5": Price(1000, 5000)}.get)
ANSWER = response_of("an answer that was paid for").model_copy(update={"cost_usd": 0.5})


@dataclass
class Process:
    """A process that works on the store, and what it kept with answers."""

    rows: JobRows
    store: Store
    kept: list[str]

    def keep(self, _tx: Transaction, request: LLMRequest, _response: LLMResponse) -> None:
        self.kept.append(request.key.job_id)

    def client(self, model: Held | Scripted) -> ReplayGuard:
        """Return the part of the chain that holds answers."""
        return replay_guard(
            self.store, Recorder(model, self.store, ESTIMATES, answer_spool(self.store, self.keep)), self.keep
        )

    def calls(self, request: LLMRequest) -> list[LLMCall]:
        with self.store.view() as tx:
            return list(tx.llm.calls.list_calls_of_job(request.key.job_id))

    def files(self) -> list[Path]:
        return sorted(path_of(self.store).with_name(FOLDER).glob("*"))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    rows = JobRows.at(tmp_path)
    rows.store.close()
    store = Store(tmp_path / "maestro.db", rows.clock, busy_seconds=0.02)
    rows.store = store
    yield Process(rows, store, [])
    store.close()


@pytest.fixture
def request_(process: Process) -> LLMRequest:
    key = CallKey(job_id=process.rows.add(), number=1)
    return request_of().model_copy(update={"key": key, "account": "main", "model": "claude-haiku-4-5"})


@asynccontextmanager
async def answered_while_locked(process: Process, request: LLMRequest) -> AsyncIterator["asyncio.Task[LLMResponse]"]:
    """Let the answer come while the store is locked; inside, it is in its spool file."""
    model = Held()
    call = asyncio.create_task(process.client(model).complete(request))
    await until(lambda: model.open > 0)
    with locked(path_of(process.store)):
        model.end(0, ANSWER)
        await until(lambda: any(file.suffix == ".json" for file in process.files()))
        yield call


async def killed_while_locked(process: Process, request: LLMRequest) -> Path:
    """Let the process end with the answer in its spool file; return the file."""
    async with answered_while_locked(process, request) as call:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    (file,) = process.files()
    return file


async def test_an_answer_is_kept_until_the_store_takes_it(process: Process, request_: LLMRequest) -> None:
    async with answered_while_locked(process, request_) as call:
        assert not call.done()
    assert await call == ANSWER
    assert [call.state for call in process.calls(request_)] == ["answered"]
    assert process.kept == [request_.key.job_id]
    assert await process.client(Scripted()).complete(request_) == ANSWER
    assert process.files() == []


async def test_the_next_process_commits_what_the_last_one_held_and_buys_nothing(
    process: Process, request_: LLMRequest
) -> None:
    file = await killed_while_locked(process, request_)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert request_.messages[-1].content not in file.read_text(), "the prompt is in the store"
    nobody = Scripted()
    assert await process.client(nobody).complete(request_) == ANSWER
    assert nobody.asked == []
    (call,) = process.calls(request_)
    assert (call.state, call.attempt, call.cost_usd) == ("answered", 1, 0.5)
    assert process.kept == [request_.key.job_id]
    assert process.files() == []


async def test_a_request_that_is_read_while_its_answer_is_in_a_file_is_answered_with_it(
    process: Process, request_: LLMRequest
) -> None:
    await killed_while_locked(process, request_)
    nobody = Scripted()
    client = process.client(nobody)
    with client.open_view() as view:
        request = view.add_snapshot(request_)
    assert await client.complete(request) == ANSWER
    assert nobody.asked == []


async def test_an_answer_that_is_committed_while_its_request_is_read_is_not_bought_again(
    process: Process, request_: LLMRequest
) -> None:
    await killed_while_locked(process, request_)
    nobody = Scripted()
    client = process.client(nobody)
    with client.open_view() as view:
        assert view.tx.llm.calls.find_answer(request_.key) is None
        await asyncio.to_thread(answer_spool(process.store, process.keep).commit_files)
        request = view.add_snapshot(request_)
    assert await client.complete(request) == ANSWER
    assert nobody.asked == []


@pytest.mark.parametrize("failures", [0, 1])
async def test_an_answer_that_a_stalled_attempt_commits_before_the_next_request_is_not_bought_again(
    process: Process, request_: LLMRequest, failures: int
) -> None:
    stalled, nobody = Held(), Scripted()
    call = asyncio.create_task(process.client(stalled).complete(request_))
    await until(lambda: stalled.open > 0)
    for _ in range(failures):  # Then the attempt with the answer is not the last one.
        with pytest.raises(ProviderUnavailable):
            await process.client(Scripted(ProviderUnavailable("down"))).complete(request_)
    client = process.client(nobody)
    with client.open_view() as view:
        request = view.add_snapshot(request_)
    stalled.end(0, ANSWER)
    assert await call == ANSWER
    assert await client.complete(request) == ANSWER
    assert nobody.asked == []
    assert [call.state for call in process.calls(request_)] == ["answered", *["failed"] * failures]


async def test_any_call_commits_what_is_left_of_all_others(process: Process, request_: LLMRequest) -> None:
    await killed_while_locked(process, request_)
    other = request_.model_copy(update={"key": CallKey(job_id=process.rows.add(), number=1)})
    await process.client(Scripted(response_of("another"))).complete(other)
    assert [call.state for call in process.calls(request_)] == ["answered"]
    assert process.files() == []


async def test_an_answer_that_was_committed_before_its_file_was_removed_counts_once(
    process: Process, request_: LLMRequest
) -> None:
    file = await killed_while_locked(process, request_)
    content = file.read_bytes()
    answer_spool(process.store, process.keep).commit_files()
    with process.store.view() as tx:
        spent = tx.llm.usage.list_usage_of_job(request_.key.job_id)
    file.write_bytes(content)
    answer_spool(process.store, process.keep).commit_files()
    with process.store.view() as tx:
        assert tx.llm.usage.list_usage_of_job(request_.key.job_id) == spent
    assert process.kept == [request_.key.job_id]
    assert process.files() == []


async def test_an_answer_that_another_process_committed_from_its_file_counts_once(
    process: Process, request_: LLMRequest
) -> None:
    held = SpooledAnswer.model_validate_json((await killed_while_locked(process, request_)).read_bytes())
    answer_spool(process.store, process.keep).commit_files()
    await answer_spool(process.store, process.keep).commit_answer(held.attempt, held.request, held.response)
    assert process.kept == [request_.key.job_id]


async def test_an_answer_whose_job_was_ended_meanwhile_is_in_the_books(process: Process, request_: LLMRequest) -> None:
    await killed_while_locked(process, request_)
    with process.store.begin() as tx:
        tx.llm.calls.close_calls(request_.key.job_id)
    answer_spool(process.store).commit_files()
    (call,) = process.calls(request_)
    assert (call.state, call.cost_usd) == ("answered", 0.5)


async def test_an_answer_to_a_call_that_a_restored_backup_does_not_know_is_dropped(
    process: Process, request_: LLMRequest
) -> None:
    file = await killed_while_locked(process, request_)
    held = SpooledAnswer.model_validate_json(file.read_bytes())
    key = CallKey(job_id="message-unknown", number=1)
    unknown = held.model_copy(update={"request": held.request.model_copy(update={"key": key})})
    file.write_text(unknown.model_dump_json())
    answer_spool(process.store, process.keep).commit_files()
    assert process.kept == []
    assert [call.state for call in process.calls(request_)] == ["sent"]


async def test_a_file_that_cannot_be_read_is_set_aside(process: Process, request_: LLMRequest) -> None:
    file = await killed_while_locked(process, request_)
    file.write_text("{")
    answer = response_of("bought again")
    assert await process.client(Scripted(answer)).complete(request_) == answer
    assert process.files() == [file.with_suffix(".unreadable")]


class Notes:
    """The note of an attempt, as Temporal would keep it for the next attempt."""

    def __init__(self) -> None:
        self.note: Sequence[str] = ()

    async def leave(self, *note: str) -> None:
        self.note = note

    def read(self) -> Sequence[str]:
        return self.note


@dataclass
class Host:
    """A host that shares the store with others, and no folder."""

    process: Process
    name: str
    notes: Notes

    @property
    def answers(self) -> AnswerSpool:
        (path_of(self.process.store).parent / self.name).mkdir(exist_ok=True)
        return answer_spool(self.process.store, self.process.keep, self.notes, host=self.name)

    def client(self, model: Held | Scripted) -> ReplayGuard:
        store = self.process.store
        return ReplayGuard(Recorder(model, store, ESTIMATES, self.answers), store, reader(store), self.answers)

    async def die_with_answer(self, request: LLMRequest) -> None:
        """Let a worker of this host end with the answer in its spool file, because the store is locked."""
        model, folder = Held(), path_of(self.process.store).parent / self.name / FOLDER
        call = asyncio.create_task(self.client(model).complete(request))
        await until(lambda: model.open > 0)
        with locked(path_of(self.process.store)):
            model.end(0, ANSWER)
            await until(lambda: any(file.suffix == ".json" for file in folder.glob("*")))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


@pytest.fixture
def hosts(process: Process, monkeypatch: pytest.MonkeyPatch) -> tuple[Host, Host]:
    monkeypatch.setattr(replay, "LOOK_SECONDS", 0.01)
    notes = Notes()
    return Host(process, "one", notes), Host(process, "two", notes)


async def test_another_host_waits_for_the_host_that_has_the_answer(
    process: Process, request_: LLMRequest, hosts: tuple[Host, Host]
) -> None:
    one, two = hosts
    await one.die_with_answer(request_)
    nobody = Scripted()
    with capture_logs() as logs:
        call = asyncio.create_task(two.client(nobody).complete(request_))
        await until(lambda: any(line["event"] == "answer.awaited" for line in logs))
        assert not call.done()
        one.answers.commit_files()  # a process of the host starts again
        assert await call == ANSWER
    assert nobody.asked == []
    assert [(call.state, call.attempt) for call in process.calls(request_)] == [("answered", 1)]


async def test_a_host_that_does_not_come_back_is_not_waited_for_for_long(
    process: Process, request_: LLMRequest, hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "HOLDER_SECONDS", 0.05)
    one, two = hosts
    await one.die_with_answer(request_)
    bought = Scripted(ANSWER)
    assert await two.client(bought).complete(request_) == ANSWER
    assert len(bought.asked) == 1
    assert [call.state for call in process.calls(request_)] == ["interrupted", "answered"]


async def test_the_note_of_one_call_is_not_for_another(
    process: Process, request_: LLMRequest, hosts: tuple[Host, Host]
) -> None:
    one, two = hosts
    await one.die_with_answer(request_)
    following = request_.model_copy(update={"key": request_.key.model_copy(update={"number": 2})})
    with capture_logs() as logs:
        assert await two.client(Scripted(ANSWER)).complete(following) == ANSWER
    assert "answer.awaited" not in {line["event"] for line in logs}
