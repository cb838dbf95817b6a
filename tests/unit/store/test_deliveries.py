"""What a client that comes back is told of what was sent meanwhile: which chunks have more behind them, and by whom."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.jobs.job import JobEnding, JobStatus
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from tests.support.job_rows import JobRows

HERE = Address(platform="web", channel="general")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def store(rows: JobRows, job_id: str, *contents: str, purpose: DeliveryPurpose = DeliveryPurpose.ANSWER) -> list[int]:
    """Store chunks before any of them is sent, as the delivery step does, and return their ids."""
    with rows.store.begin() as tx:
        chunks = [
            Delivery(job_id=job_id, purpose=purpose, seq=seq, content=content, created_at=tx.now, **HERE.model_dump())
            for seq, content in enumerate(contents)
        ]
        return [tx.deliveries.add_chunk(chunk).id or 0 for chunk in chunks]


def send(rows: JobRows, *delivery_ids: int) -> None:
    with rows.store.begin() as tx:
        for delivery_id in delivery_ids:
            tx.deliveries.mark_sending(delivery_id, HERE)
            tx.deliveries.mark_sent(delivery_id, Receipt(platform_message_id=str(delivery_id)))


def missed(rows: JobRows) -> list[OutgoingMessage]:
    with rows.store.view() as tx:
        return [row.build_outgoing(has_more=more) for row, more, _ in tx.deliveries.list_sent_since(HERE, 0, 100)]


def test_every_chunk_but_the_last_says_that_more_follows(rows: JobRows) -> None:
    answered, other = rows.add("tell me everything"), rows.add("hello")
    chunks = store(rows, answered, "a", "b", "c")
    send(rows, *chunks, *store(rows, other, "hello"))
    assert [(chunk.content, chunk.more) for chunk in missed(rows)] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("hello", False),
    ]


def test_a_chunk_whose_rest_is_still_to_be_sent_says_so(rows: JobRows) -> None:
    first, _ = store(rows, rows.add(), "a", "b")
    send(rows, first)
    assert [(chunk.content, chunk.more) for chunk in missed(rows)] == [("a", True)]


def test_a_chunk_whose_rest_was_given_up_is_the_last_until_the_job_goes_on(rows: JobRows) -> None:
    job = rows.add()
    first, _ = store(rows, job, "a", "b")
    send(rows, first)
    with rows.store.begin() as tx:
        tx.jobs.update_job(job, status=JobStatus.RUNNING)
        tx.jobs.close_job(job, JobEnding(status=JobStatus.CANCELLED))
    assert [(chunk.content, chunk.more) for chunk in missed(rows)] == [("a", False)]
    with rows.store.begin() as tx:
        tx.deliveries.revive_chunks(job)
    assert [(chunk.content, chunk.more) for chunk in missed(rows)] == [("a", True)]


def test_what_maestro_itself_says_is_a_notice(rows: JobRows) -> None:
    job = rows.add()
    send(rows, *store(rows, job, "a part of the answer"), *store(rows, job, "sorry", purpose=DeliveryPurpose.NOTICE))
    assert [(chunk.notice, chunk.more) for chunk in missed(rows)] == [(False, False), (True, False)]
