"""Figures for monitoring: every query finds its rows by an index, however much is kept."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.deliveries import DeliveryState
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.calls import CallState
from maestro.store.engine.statements import BATCH
from maestro.store.overviews.figures import MonitoringFigures
from tests.support.job_rows import JobRows
from tests.support.plans import explain, queries

LOOKS: dict[str, Callable[[MonitoringFigures], object]] = {
    "marks": lambda figures: figures.read_last_ids(),
    "open jobs": lambda figures: figures.count_open_jobs(),
    "ended jobs": lambda figures: figures.list_ended_jobs(3, [1, 2]),
    "received": lambda figures: figures.count_received(3),
    "calls": lambda figures: figures.list_calls(3, [1, 2]),
    "open calls": lambda figures: figures.list_open_calls(),
    "deliveries": lambda figures: figures.list_deliveries(3, [1, 2]),
    "open deliveries": lambda figures: figures.list_open_deliveries(),
}


@pytest.fixture
def rows(tmp_path: Path) -> JobRows:
    return JobRows.at(tmp_path)


STATISTICS = pytest.mark.sqlite_only(reason="PostgreSQL chooses by statistics of how many rows a job has")
MARKS = {"open calls": STATISTICS, "open deliveries": STATISTICS}


CASES = [pytest.param(look, id=name, marks=MARKS.get(name, ())) for name, look in LOOKS.items()]


@pytest.mark.parametrize("look", CASES)
def test_no_look_reads_a_whole_table(
    rows: JobRows, tmp_path: Path, look: Callable[[MonitoringFigures], object]
) -> None:
    with queries() as asked, rows.store.view() as tx:
        look(tx.system.figures)
    assert asked
    for statement, values in asked:
        plan = explain(tmp_path / "maestro.db", statement, values)
        assert plan.lines
        assert not plan.scanned | plan.read_through, plan


def test_open_jobs_are_told_by_status_and_the_oldest_by_its_arrival(rows: JobRows) -> None:
    first, second, third = rows.add(), rows.add(), rows.add()
    rows.end(third, JobStatus.COMPLETED)
    with rows.store.begin() as tx:
        tx.jobs.update_job(first, status=JobStatus.RUNNING)
    with rows.store.view() as tx:
        found = tx.system.figures.count_open_jobs()
        assert sorted(found.by_position.values()) == [JobStatus.PENDING, JobStatus.RUNNING]
        assert found.oldest_pending == tx.jobs.get(second).created_at


def test_a_resumed_job_is_no_old_one(rows: JobRows) -> None:
    job_id = rows.failed()
    rows.clock.go(days=3)
    with rows.store.begin() as tx:
        tx.jobs.reopen_job(tx.jobs.get(job_id))
    with rows.store.view() as tx:
        assert list(tx.system.figures.count_open_jobs().by_position.values()) == [JobStatus.PENDING]
        assert tx.system.figures.count_open_jobs().oldest_pending is None


def test_an_ended_job_says_how_and_how_long_it_took(rows: JobRows) -> None:
    job_id = rows.add()
    rows.clock.go(seconds=4)
    rows.end(job_id, JobStatus.FAILED, "RateLimited")
    rows.add()
    with rows.store.view() as tx:
        (ended,) = tx.system.figures.list_ended_jobs(0, ())
    assert (ended.status, ended.error, ended.took) == (JobStatus.FAILED, "RateLimited", timedelta(seconds=4))


def test_many_known_keys_are_asked_for_in_parts(rows: JobRows) -> None:
    for _ in range(3):
        rows.failed()
    with rows.store.view() as tx:
        last = tx.system.figures.read_last_ids().position
        assert len(tx.system.figures.list_ended_jobs(last, range(1, 3 * BATCH))) == 3


def test_calls_and_chunks_are_told_with_their_states(rows: JobRows) -> None:
    rows.worked(rows.add())
    with rows.store.view() as tx:
        calls, chunks = tx.system.figures.list_calls(0, ()), tx.system.figures.list_deliveries(0, ())
        assert [call.state for call in calls] == [CallState.INTERRUPTED, CallState.FAILED, CallState.ANSWERED]
        assert [chunk.state for chunk in chunks] == [DeliveryState.SENT, DeliveryState.SENDING]
        assert tx.system.figures.list_open_deliveries() == {chunks[1].id}
        assert not tx.system.figures.list_open_calls()
        assert [call.id for call in tx.system.figures.list_calls(calls[1].id, [calls[0].id])] == [
            calls[2].id,
            calls[0].id,
        ]
