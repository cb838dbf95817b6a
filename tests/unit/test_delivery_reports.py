"""What a platform says of a chunk by itself, before our receipt, in place of one, or long after."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from activities.chunks import OutgoingContent, store_chunks
from connectors.base import Idempotency, OnAmbiguous, PermanentSend, Unsettled
from maestro.domain.deliveries import Delivery, DeliveryPurpose, buttons_json
from maestro.domain.jobs.job import JobStatus, StepState
from maestro.domain.messages import Button, OutgoingMessage, Receipt, ReceiptState
from tests.support.delivery_bench import CUT, Bench, Platform, Silent
from tests.support.job_rows import JobRows


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    rows = JobRows.at(tmp_path)
    yield Bench(rows)
    rows.store.close()


def test_what_the_platform_could_not_bring_fails_the_job_and_is_sent_again_when_it_is_resumed(bench: Bench) -> None:
    """The status comes before our receipt."""

    class Undeliverable(Platform):
        async def send(self, message: OutgoingMessage) -> Receipt:
            receipt = await super().send(message)
            await asyncio.to_thread(bench.told, message.key, ReceiptState.FAILED)
            return receipt

    refused = bench.deliver(Undeliverable(Idempotency.NATIVE))
    assert isinstance(refused, PermanentSend)
    assert (bench.states(), bench.chunks()[0].error) == (["failed", "failed"], "nobody is there")
    bench.rows.end(bench.job_id, JobStatus.FAILED)
    with bench.rows.store.begin() as tx:
        tx.deliveries.revive_chunks(bench.job_id)
        tx.jobs.update_job(bench.job_id, status=JobStatus.RUNNING, completed_at=None)
    platform = Platform(Idempotency.NATIVE)
    assert bench.deliver(platform) is None
    assert (len(platform.posts), bench.states()) == (2, ["sent", "sent"])


def test_what_fails_after_the_job_was_answered_makes_it_one_that_failed(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    bench.answer("an answer")
    assert bench.deliver(platform) is None
    bench.told(platform.posts[0].key, ReceiptState.FAILED)
    with bench.rows.store.view() as tx:
        job = tx.jobs.get(bench.job_id)
        failed = tx.jobs.steps.find_last_attempt(bench.job_id, StepState.FAILED)
        assert failed is not None
        assert failed.error == "Undelivered"
    assert (job.status, job.error, bench.states()) == (JobStatus.FAILED, "nobody is there", ["failed"])


def test_what_is_said_of_the_old_message_is_no_word_about_the_one_sent_in_its_place(bench: Bench) -> None:
    """The status that failed a chunk comes again, and an older one comes late, while it is sent anew."""
    platform = Silent(Idempotency.RECONCILE)
    bench.answer("an answer")
    assert bench.deliver(platform) is None
    old = platform.posts[0].key
    bench.told(old, ReceiptState.FAILED)
    bench.resume()
    for late in (ReceiptState.SENT, ReceiptState.FAILED):
        bench.told(old, late, known=False)
    platform.script.append(CUT)
    assert bench.deliver(platform) is CUT
    [chunk] = bench.chunks()
    assert (chunk.standing, chunk.platform_message_id, chunk.key != old) == ("", "", True)
    bench.told(chunk.key, ReceiptState.DELIVERED)
    assert bench.states() == ["sending"]
    assert bench.deliver(platform) is None
    assert (bench.states(), bench.status()) == (["sent"], JobStatus.COMPLETED)


@pytest.mark.parametrize(
    ("standing", "state", "status"),
    [
        (ReceiptState.SENT, "sent", JobStatus.COMPLETED),
        (ReceiptState.READ, "sent", JobStatus.COMPLETED),
        (ReceiptState.FAILED, "failed", JobStatus.FAILED),
    ],
)
def test_what_was_held_back_is_settled_by_what_the_platform_says_late(
    bench: Bench, standing: ReceiptState, state: str, status: JobStatus
) -> None:
    """Nobody is asked to have sent again what is known to be there; what is not there can be."""
    platform = Silent(Idempotency.RECONCILE)
    platform.capabilities = replace(platform.capabilities, on_ambiguous=OnAmbiguous.HOLD)
    bench.answer("an answer")
    platform.script.append(CUT)
    bench.deliver(platform)
    assert bench.deliver(platform) is None
    assert (bench.states(), bench.status()) == (["unconfirmed"], JobStatus.COMPLETED)
    bench.told(platform.posts[0].key, standing)
    with bench.rows.store.view() as tx:
        assert not tx.deliveries.reports.has_held_chunk(bench.job_id)
    assert (bench.states(), bench.status()) == ([state], status)
    assert bench.chunks()[0].sent_at is not None


def test_what_the_platform_says_while_the_wait_for_it_ends_is_heard(bench: Bench) -> None:
    """A status is kept after the last look, and before it is decided what becomes of the chunk."""

    class Late(Platform):
        async def find(self, message: OutgoingMessage) -> Receipt | None:
            await asyncio.to_thread(bench.told, message.key, ReceiptState.SENT)
            raise Unsettled("no word of it")

    platform = Late(Idempotency.RECONCILE)
    platform.capabilities = replace(platform.capabilities, on_ambiguous=OnAmbiguous.RESEND)
    bench.answer("an answer")
    platform.script.append(CUT)
    bench.deliver(platform)
    assert bench.deliver(platform) is None
    assert (len(platform.posts), bench.states(), bench.chunks()[0].repeats) == (1, ["sent"], 0)


def test_what_a_platform_tells_never_goes_back(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    bench.answer("an answer")
    assert bench.deliver(platform) is None
    key = platform.posts[0].key
    for standing in (ReceiptState.READ, ReceiptState.SENT, ReceiptState.DELIVERED, ReceiptState.FAILED):
        bench.told(key, standing)
    assert (bench.states(), bench.chunks()[0].standing, bench.status()) == (["sent"], "failed", JobStatus.COMPLETED)


@pytest.mark.parametrize("hostile", ["", "\ud800", "\x00", "é" * 9, "%", "x" * 2_000])
def test_only_a_key_of_ours_names_a_button(bench: Bench, hostile: str) -> None:
    with bench.rows.store.begin() as tx:
        place = tx.jobs.get(bench.job_id).address
        own = buttons_json([Button(label="Red", value="Red #7")])
        chunk = Delivery(
            job_id=bench.job_id,
            purpose=DeliveryPurpose.NOTICE,
            seq=0,
            content="?",
            buttons=own,
            created_at=tx.now,
            **place.model_dump(),
        )
        key = tx.deliveries.add_chunk(chunk).key
        pressed = tx.deliveries.reports.find_button_value
        assert [pressed(place, key, number) for number in (0, 1, -1, 10**30)] == ["Red #7", None, None, None]
        assert pressed(place, hostile, 0) is None
        assert pressed(place.model_copy(update={"account": "another"}), key, 0) is None


def test_buttons_stand_below_words_and_not_below_a_file(bench: Bench) -> None:
    platform = Platform(Idempotency.NATIVE)
    platform.capabilities = replace(platform.capabilities, max_length=200, max_file_bytes=10_000, max_buttons=5)
    words = OutgoingContent("a long question? " * 100, (), [Button(label="Yes", value="yes #7")])
    with bench.rows.store.begin() as tx:
        job = tx.jobs.get(bench.job_id)
        chunks = store_chunks(tx, job, tx.deliveries.read_start(job, DeliveryPurpose.NOTICE), words, platform)
    assert [(bool(chunk.filename), len(chunk.choices)) for chunk in chunks] == [(False, 1), (True, 0)]
