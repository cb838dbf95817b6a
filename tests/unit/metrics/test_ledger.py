"""The ledger: each message, ended job, ended call and ended chunk is told once, whatever becomes of its row."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.deliveries import DeliveryState
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.calls import CallEstimate, CallState
from maestro.domain.llm.prompts import CallKey
from maestro.domain.messages import Address
from maestro.metrics.instruments import MetricCursor
from tests.support.job_rows import JobRows


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def statuses(ledger: MetricCursor) -> list[JobStatus]:
    """Return how the jobs ended that a look tells."""
    return [job.status for job in ledger.read_changes().ended]


def test_what_was_there_before_is_not_told(rows: JobRows) -> None:
    rows.worked(rows.add(platform="slack"))
    rows.failed()
    news = MetricCursor(rows.store).read_changes()
    assert not [*news.ended, *news.calls, *news.deliveries, *news.received]
    assert news.deliveries_open == 1


def test_everything_is_told_once(rows: JobRows) -> None:
    ledger = MetricCursor(rows.store)
    job_id = rows.add()
    rows.worked(job_id)
    rows.end(job_id, JobStatus.COMPLETED)
    news = ledger.read_changes()
    assert news.received == {"web": 1}
    assert [job.status for job in news.ended] == [JobStatus.COMPLETED]
    assert [call.state for call in news.calls] == [CallState.INTERRUPTED, CallState.FAILED, CallState.ANSWERED]
    assert [chunk.state for chunk in news.deliveries] == [DeliveryState.SENT, DeliveryState.UNCONFIRMED]
    again = ledger.read_changes()
    assert not [*again.received, *again.ended, *again.calls, *again.deliveries]


def test_what_was_dropped_at_the_door_is_told_once_by_its_reason(rows: JobRows) -> None:
    def ignore(reason: str, times: int) -> None:
        with rows.store.begin() as tx:
            for number in range(times):
                tx.inbox.ignored.add_ignored(Address(platform="web", channel=str(number)), reason)

    ignore("dull", 2)
    ledger = MetricCursor(rows.store)
    ignore("dull", 3)
    ignore("loud", 1)
    assert ledger.read_changes().ignored == {"dull": 3, "loud": 1}
    assert ledger.read_changes().ignored == {"dull": 0, "loud": 0}


def test_what_was_open_is_told_when_it_ends(rows: JobRows) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    ledger = MetricCursor(rows.store)
    first = ledger.read_changes()
    assert list(first.open_jobs.by_position.values()) == [JobStatus.RUNNING]
    assert (first.deliveries_open, first.deliveries) == (1, [])
    rows.end(job_id, JobStatus.CANCELLED)
    second = ledger.read_changes()
    assert [job.status for job in second.ended] == [JobStatus.CANCELLED]
    assert [chunk.state for chunk in second.deliveries] == [DeliveryState.UNCONFIRMED]
    assert second.deliveries_open == 0


def test_a_resumed_job_ends_twice_and_takes_nothing_back(rows: JobRows) -> None:
    ledger = MetricCursor(rows.store)
    job_id = rows.failed()
    assert statuses(ledger) == [JobStatus.FAILED]
    with rows.store.begin() as tx:
        tx.jobs.reopen_job(tx.jobs.get(job_id))
    assert statuses(ledger) == []
    rows.end(job_id, JobStatus.COMPLETED)
    assert statuses(ledger) == [JobStatus.COMPLETED]


def test_a_call_in_flight_is_open_until_it_is_answered(rows: JobRows) -> None:
    ledger = MetricCursor(rows.store)
    job_id = rows.add()
    estimate = CallEstimate("anthropic", "claude-haiku-4-5", 10, 0.1)
    with rows.store.begin() as tx:
        attempt = tx.llm.calls.record_sending(CallKey(job_id=job_id, number=1), "digest", estimate)
    assert (ledger.read_changes().calls_open, ledger.read_changes().calls) == (1, [])
    with rows.store.begin() as tx:
        tx.llm.calls.record_interruption(CallKey(job_id=job_id, number=1), attempt)
    news = ledger.read_changes()
    assert news.calls_open == 0
    assert [(call.state, call.cost_usd) for call in news.calls] == [(CallState.INTERRUPTED, 0.1)]
