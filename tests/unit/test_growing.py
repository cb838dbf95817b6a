"""Drafts are shown once, at their pace, and whatever becomes of that, the answer does not wait for it for long."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from activities.chunks import outgoing_content, store_chunks
from connectors.base import (
    AmbiguousSend,
    Capabilities,
    FailureScope,
    Idempotency,
    LengthUnit,
    NotDispatched,
    OnAmbiguous,
    PermanentSend,
)
from connectors.hub import ConnectorHub
from maestro import streaming
from maestro.domain.deliveries import Delivery, DeliveryPurpose, JobFile
from maestro.domain.drafts import IN_FILES, PLACEHOLDER, STOPPED, Draft, DraftState
from maestro.domain.errors import StoreBusy
from maestro.domain.jobs.job import JobStatus
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro.streaming import DraftStreamer
from tests.support.job_rows import JobRows

ABLE = Capabilities(140, LengthUnit.CODE_POINTS, 8, Idempotency.NATIVE, max_file_bytes=100, edit_interval=0.01)
ADDRESS = Address(platform="slack", channel="general")


class Screen:
    """A platform in memory, and the connector to it; ``script`` says how the next calls go."""

    platform, account, token_digest = "slack", "default", ""

    def __init__(self) -> None:
        self.capabilities = ABLE
        self.texts: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.calls: list[OutgoingMessage] = []
        self.script: deque[Exception | None] = deque()
        self.stuck = asyncio.Event()
        self.running = ExitStack()

    def registered(self) -> ConnectorHub:
        """Return the connectors of a process that has only this one."""
        hub = ConnectorHub()
        self.running.enter_context(hub.register_while_running(self))
        return hub

    async def run(self) -> None:
        """Receive nothing."""

    async def typing(self, address: Address) -> None:
        """Show nothing."""

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Take a message, once for each key."""
        failure = self._called(message)
        known = self.keys.get(message.key) or f"p-{len(self.texts) + 1}"
        if failure is None or isinstance(failure, AmbiguousSend):
            self.keys[message.key] = known
            self.texts.setdefault(known, message.content)
        if failure is not None:
            raise failure
        return Receipt(platform_message_id=known)

    async def edit(self, message: OutgoingMessage) -> None:
        """Change a message."""
        failure = self._called(message)
        if isinstance(failure, TimeoutError):
            self.stuck.set()
            await asyncio.Event().wait()
        if failure is not None:
            raise failure
        self.texts[message.edits] = message.content

    def _called(self, message: OutgoingMessage) -> Exception | None:
        self.calls.append(message)
        return self.script.popleft() if self.script else None


class Bench:
    """A job that runs, and a screen."""

    def __init__(self, rows: JobRows) -> None:
        self.rows = rows
        self.screen = Screen()
        self.answers = DraftStreamer(rows.store, self.screen.registered())
        self.job_id = rows.add(platform="slack")
        self.now(JobStatus.RUNNING)

    def now(self, status: JobStatus) -> None:
        """Let the job be in a status."""
        with self.rows.store.begin() as tx:
            tx.jobs.update_job(self.job_id, status=status)

    def write(self, text: str) -> None:
        """Let the model have said so much."""
        with self.rows.store.begin() as tx:
            tx.deliveries.drafts.save_draft_text(self.job_id, 1, text)

    @property
    def draft(self) -> Draft | None:
        """What is kept of it."""
        with self.rows.store.view() as tx:
            return tx.deliveries.drafts.find_draft(self.job_id)

    def deliver(self, text: str) -> list[Delivery]:
        """Let the answer be cut into chunks."""
        with self.rows.store.begin() as tx:
            job = tx.jobs.get(self.job_id)
            start = tx.deliveries.read_start(job, DeliveryPurpose.ANSWER)
            return store_chunks(tx, job, start, replace(outgoing_content(tx, job, start), text=text), self.screen)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when something is so of which nobody is told."""
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def shows(self, *texts: str) -> None:
        """Return when the screen shows just these messages."""
        await self.until(lambda: tuple(self.screen.texts.values()) == texts)

    @asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        """Show for the length of a block."""
        task = asyncio.create_task(self.answers.stream_until_cancelled())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(streaming, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(streaming, "PATIENCE_SECONDS", 0.05)
    rows = JobRows.at(tmp_path)
    yield Bench(rows)
    rows.store.close()


async def test_it_is_placed_without_a_word_and_then_written(bench: Bench) -> None:
    async with bench.showing():
        bench.write("one")
        await bench.shows("one")
        bench.write("one two")
        await bench.shows("one two")
    first, second, *_ = bench.screen.calls
    assert (first.content, first.edits, second.edits) == (PLACEHOLDER, "", "p-1")
    assert first.reply_to == bench.job_id


async def test_processes_that_call_models_are_told_where_answers_grow(bench: Bench) -> None:
    def offered() -> float:
        with bench.rows.store.view() as tx:
            return tx.deliveries.drafts.read_edit_interval((ADDRESS.platform, ADDRESS.account))

    assert offered() == 0
    async with bench.showing():
        await bench.until(lambda: offered() == ABLE.edit_interval)
        bench.screen.capabilities = replace(ABLE, edit_interval=0)
        await bench.until(lambda: offered() == 0)


async def test_only_as_much_is_shown_as_one_message_holds(bench: Bench) -> None:
    async with bench.showing():
        bench.write("word " * 60)
        await bench.until(lambda: "word" in bench.screen.texts.get("p-1", ""))
    assert len(bench.screen.texts["p-1"]) <= ABLE.max_length


async def test_nothing_new_is_put_between_the_messages_of_another(bench: Bench) -> None:
    other = bench.rows.add(platform="slack")
    with bench.rows.store.begin() as tx:
        assert tx.deliveries.begin_delivery(tx.jobs.read(other), DeliveryPurpose.ANSWER).has_lane
    async with bench.showing():
        bench.write("one")
        await asyncio.sleep(0.1)
        assert bench.screen.calls == []
        with bench.rows.store.begin() as tx:
            tx.deliveries.release_lanes(other)
        await bench.shows("one")


async def test_of_two_answers_in_one_channel_one_grows_at_a_time(bench: Bench) -> None:
    def begin() -> str:
        job_id = bench.rows.add(platform="slack")
        with bench.rows.store.begin() as tx:
            tx.jobs.update_job(job_id, status=JobStatus.RUNNING, lane="slack/another")
            tx.deliveries.drafts.save_draft_text(job_id, 1, "of another")
        return job_id

    async with bench.showing():
        bench.write("one")
        await bench.shows("one")
        begin()
        bench.write("one two")
        await bench.shows("one two")
        assert len(bench.screen.texts) == 1
        # Nobody knows for how long a job waits, so nobody waits for it.
        bench.now(JobStatus.WAITING)
        await bench.shows("one two", "of another")


async def test_a_question_in_the_middle_keeps_its_message(bench: Bench) -> None:
    async with bench.showing():
        bench.write("which")
        await bench.shows("which")
        (asked,) = bench.deliver("which one?")
        await bench.screen.edit(asked.build_outgoing(has_more=False))
        with bench.rows.store.begin() as tx:
            tx.deliveries.drafts.delete_draft(bench.job_id)
    bench.answers = DraftStreamer(bench.rows.store, bench.screen.registered())
    bench.rows.clock.go(seconds=1)
    async with bench.showing():
        bench.write("this one")
        await bench.shows("which one?", "this one")


@pytest.mark.parametrize(
    "failure", [NotDispatched("no"), AmbiguousSend("cut"), RuntimeError("a bug")], ids=["unreachable", "cut", "bug"]
)
async def test_a_placeholder_that_fails_is_asked_for_again(
    bench: Bench, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LONGEST_PAUSE", 0.05)
    bench.screen.script.append(failure)
    async with bench.showing():
        bench.write("one")
        await bench.shows("one")
    assert len({call.key for call in bench.screen.calls}) == 1


async def test_where_the_platform_refuses_it_nothing_is_shown(bench: Bench) -> None:
    bench.screen.script.append(PermanentSend("no", FailureScope.CHANNEL))
    async with bench.showing():
        bench.write("one")
        await bench.until(lambda: bench.draft is not None and bench.draft.state is DraftState.DROPPED)
    assert bench.screen.texts == {}
    [chunk] = bench.deliver("the answer")
    assert chunk.edits == ""
    assert bench.draft is None


async def test_where_nobody_can_say_whether_it_is_there_the_answer_comes_whole(bench: Bench) -> None:
    bench.screen.capabilities = replace(ABLE, idempotency=Idempotency.NONE, on_ambiguous=OnAmbiguous.RESEND)
    bench.screen.script.append(AmbiguousSend("cut"))
    async with bench.showing():
        bench.write("one")
        await bench.until(lambda: bench.draft is not None and bench.draft.state is DraftState.DROPPED)
    assert list(bench.screen.texts.values()) == [PLACEHOLDER]


async def test_what_a_crash_left_in_doubt_is_settled_by_its_key(bench: Bench) -> None:
    bench.write("one")
    with bench.rows.store.begin() as tx:
        assert tx.deliveries.drafts.mark_sending(bench.job_id)
    await bench.answers.settle_draft(bench.job_id, bench.screen)
    [chunk] = bench.deliver("the answer")
    assert chunk.edits == "p-1"
    assert bench.screen.texts == {"p-1": PLACEHOLDER}


async def test_an_answer_says_so_while_the_platform_does_not_say_whether_it_is_there(bench: Bench) -> None:
    bench.write("one")
    with bench.rows.store.begin() as tx:
        assert tx.deliveries.drafts.mark_sending(bench.job_id)
    bench.screen.script.append(AmbiguousSend("cut"))
    with pytest.raises(AmbiguousSend, match="does not say"):
        await bench.answers.settle_draft(bench.job_id, bench.screen)


async def test_an_edit_that_hangs_does_not_keep_the_answer_waiting(bench: Bench) -> None:
    bench.screen.script.extend([None, TimeoutError()])
    async with bench.showing():
        bench.write("one")
        await bench.screen.stuck.wait()
        await bench.answers.end_streaming(bench.job_id)
        calls = len(bench.screen.calls)
        bench.write("one two")
        await asyncio.sleep(0.1)
        assert len(bench.screen.calls) == calls
    [chunk] = bench.deliver("the answer")
    assert chunk.edits == "p-1"
    assert bench.draft is not None
    assert bench.draft.state is DraftState.TAKEN


async def test_a_job_that_waits_keeps_its_message_and_goes_on_in_it(bench: Bench) -> None:
    async with bench.showing():
        bench.write("one")
        await bench.shows("one")
        bench.now(JobStatus.WAITING)
        bench.write("lost")
        bench.now(JobStatus.RUNNING)
        bench.write("two")
        await bench.shows("two")


async def test_what_was_cancelled_says_so_and_is_forgotten(bench: Bench) -> None:
    async with bench.showing():
        bench.write("one two")
        await bench.shows("one two")
        bench.now(JobStatus.CANCELLED)
        await bench.shows(f"one two{STOPPED}")
        await bench.until(lambda: bench.draft is None)


async def test_what_was_left_behind_is_cleaned_up_where_answers_grow_no_more(bench: Bench) -> None:
    bench.write("one")
    with bench.rows.store.begin() as tx:
        assert tx.deliveries.drafts.mark_sending(bench.job_id)
        tx.deliveries.drafts.set_message_id(bench.job_id, Receipt(platform_message_id="p-7"))
    bench.now(JobStatus.FAILED)
    bench.screen.capabilities = replace(ABLE, edit_interval=0)
    async with bench.showing():
        await bench.until(lambda: bench.draft is None)
    assert bench.screen.texts == {"p-7": f"one{STOPPED}"}


async def test_what_is_shown_when_answers_grow_no_more_is_looked_after_to_its_end(bench: Bench) -> None:
    bench.write("one")
    with bench.rows.store.begin() as tx:
        assert tx.deliveries.drafts.mark_sending(bench.job_id)
        tx.deliveries.drafts.set_message_id(bench.job_id, Receipt(platform_message_id="p-7"))
    bench.screen.capabilities = replace(ABLE, edit_interval=0)
    async with bench.showing():
        await bench.shows("one")
        await asyncio.sleep(0.3)
        bench.now(JobStatus.CANCELLED)
        await bench.until(lambda: bench.draft is None)
    assert bench.screen.texts == {"p-7": f"one{STOPPED}"}


def test_an_answer_of_files_alone_leaves_no_torn_text(bench: Bench) -> None:
    bench.write("one")
    with bench.rows.store.begin() as tx:
        assert tx.deliveries.drafts.mark_sending(bench.job_id)
        tx.deliveries.drafts.set_message_id(bench.job_id, Receipt(platform_message_id="p-1"))
        file = JobFile(job_id=bench.job_id, digest="d", filename="a.txt", size=3, created_at=tx.now)
        tx.deliveries.files.add_file(file)
    first, second = bench.deliver("")
    assert (first.content, first.edits, second.filename, second.edits) == (IN_FILES, "p-1", "a.txt", "")


async def test_what_was_shown_before_a_crash_is_not_written_over_the_answer(bench: Bench) -> None:
    bench.write("one")
    with bench.rows.store.begin() as tx:
        assert tx.deliveries.drafts.mark_sending(bench.job_id)
        tx.deliveries.drafts.set_message_id(bench.job_id, Receipt(platform_message_id="p-1"))
    await bench.answers.end_streaming(bench.job_id)
    other = bench.rows.add(platform="slack")
    async with bench.showing():
        with bench.rows.store.begin() as tx:
            tx.jobs.update_job(other, status=JobStatus.RUNNING, thread="another", lane="slack/another")
            tx.deliveries.drafts.save_draft_text(other, 1, "of another")
        await bench.shows("of another")
    assert "p-1" not in {call.edits for call in bench.screen.calls if call.content != "of another"}


async def test_what_a_busy_store_did_not_tell_is_shown_without_another_change(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "PAUSE_SECONDS", 0.01)
    async with bench.showing():
        bench.write("The fox")
        await bench.shows("The fox")
        await bench.until(lambda: not bench.answers._is_due_again)
        read, failed = bench.rows.store.read, threading.Event()

        def fail_once(*given: Any, **named: Any) -> Any:
            if failed.is_set():
                return read(*given, **named)
            failed.set()
            raise StoreBusy("locked")

        monkeypatch.setattr(bench.rows.store, "read", fail_once)
        bench.write("The fox jumps")
        await bench.shows("The fox jumps")
        assert failed.is_set()
