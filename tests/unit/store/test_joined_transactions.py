"""Transactions that are parts of another one, and what is read and written once in them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.jobs.flow import DeliverOutcome
from maestro.domain.jobs.job import StepRef, StepState
from maestro.store.jobs.steps import StepHistory, TemporalAttempt, use_attempt
from maestro.store.transaction import Transaction, open_savepoint
from tests.support.job_rows import JobRows
from tests.support.statements import statements


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def _written(rows: JobRows, job: str) -> int:
    with rows.store.begin() as part:
        part.jobs.update_job(job, reason="of the part")
    return 1


def _noted(tx: Transaction, job: str) -> int:
    tx.jobs.update_later(job, reason="inside", attempts=9)
    return 1


def test_a_part_is_taken_back_with_the_whole(rows: JobRows) -> None:
    job = rows.add()
    with pytest.raises(ZeroDivisionError), rows.store.begin():
        _ = _written(rows, job) / 0
    with rows.store.view() as tx:
        assert tx.jobs.read(job).reason == ""


def test_a_view_within_it_reads_what_it_has_written(rows: JobRows) -> None:
    job = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job, reason="written")
        with rows.store.view() as view:
            assert view.jobs.read(job).reason == "written"
    assert not rows.store.is_writing


def test_what_waits_for_the_commit_is_called_after_that_of_the_whole(rows: JobRows) -> None:
    called: list[bool] = []
    with rows.store.begin():
        with rows.store.begin() as part:
            part.call_after_commit(lambda: called.append(rows.store.is_writing))
        assert called == []
    assert called == [False]


def test_a_job_is_read_once_and_its_changes_are_one_statement(rows: JobRows) -> None:
    job = rows.add()
    with rows.store.begin() as tx, statements(tx) as run:
        tx.jobs.read(job)
        tx.jobs.update_later(job, reason="noted")
        with rows.store.begin() as part:
            part.jobs.update_later(job, attempts=2)
            assert (part.jobs.read(job).reason, part.jobs.read(job).attempts) == ("noted", 2)
        tx._link.flush_writes()
    assert [sql.split()[0] for sql in run] == ["SELECT", "UPDATE"]
    with rows.store.view() as tx:
        assert (tx.jobs.read(job).reason, tx.jobs.read(job).attempts) == ("noted", 2)


def test_steps_that_end_in_it_are_one_statement_and_their_times_are_times(rows: JobRows) -> None:
    job = rows.add()
    with rows.store.begin() as tx, statements(tx) as run:
        for name in ("route", "conversation", "context"):
            ref = StepRef(job_id=job, step=name)
            attempt = tx.jobs.steps.begin_attempt(
                ref, name, 1, tx.jobs.steps.read_history(ref, TemporalAttempt("run")), recorded=False
            )
            with use_attempt(attempt):
                tx.jobs.steps.fail_attempt(ref, "Error", "")
        tx._link.flush_writes()
    assert [sql.split()[0] for sql in run] == ["SELECT", "INSERT"]
    with rows.store.view() as tx:
        kept = tx.jobs.steps.list_attempts_of_job(job)
        written = tx._link.driver.execute("SELECT started_at, finished_at FROM job_steps").fetchall()
    assert [(step.step, step.started_at) for step in kept] == [
        (name, rows.clock.now) for name in ("route", "conversation", "context")
    ]
    assert {moment for row in written for moment in row} == {rows.clock.now.isoformat(timespec="microseconds")}


def test_the_past_of_a_step_does_not_grow_with_what_comes_after_it(rows: JobRows) -> None:
    ref = StepRef(job_id=rows.add(), step="model-1")
    with rows.store.begin() as tx:
        past: StepHistory = tx.jobs.steps.read_history(ref)
        tx.jobs.steps.begin_attempt(ref, "call_model", 1, past)
        assert (past.count_crashes(1), tx.jobs.steps.read_history(ref).count_crashes(1)) == (0, 1)


def test_steps_that_were_read_before_are_not_read_again_where_the_attempt_has_run_until_now(rows: JobRows) -> None:
    ref = StepRef(job_id=rows.add(), step="model-1")
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(ref, "call_model", 1)
    with rows.store.view() as tx:
        known = tx.jobs.steps.read_attempts(ref.job_id)
    with rows.store.begin() as tx, statements(tx) as run:
        tx.jobs.steps.cache_attempts(ref.job_id, known)
        tx.jobs.steps.finish_step(ref, DeliverOutcome(chunks=1))
        assert tx.jobs.steps.read_history(ref).result == '{"chunks":1}'
    assert [sql.split()[0] for sql in run] == ["UPDATE"]
    assert known["model-1"][0].state is StepState.RUNNING, "what was read stays as it was read"


def test_steps_that_were_read_before_are_read_again_where_a_newer_attempt_has_begun_since(rows: JobRows) -> None:
    model, deliver = (StepRef(job_id="message-080001", step=step) for step in ("model-1", "deliver"))
    assert rows.add() == model.job_id
    with rows.store.begin() as tx:
        tx.jobs.steps.start_attempt(model, "call_model", 1)
    with rows.store.view() as tx:
        known = tx.jobs.steps.read_attempts(model.job_id)
    with rows.store.begin() as tx:  # another process
        tx.jobs.steps.start_attempt(model, "call_model", 1)
        tx.jobs.steps.start_attempt(deliver, "deliver", 1)
    with rows.store.begin() as tx:
        tx.jobs.steps.cache_attempts(model.job_id, known)
        assert tx.jobs.steps.read_history(deliver).last_attempt == 0
        tx.jobs.steps.finish_step(model, DeliverOutcome(chunks=1))
        assert tx.jobs.steps.read_history(deliver).last_attempt == 1


def test_a_savepoint_that_is_taken_back_forgets_what_was_noted_in_it(rows: JobRows) -> None:
    job = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_later(job, reason="before")
        with pytest.raises(ZeroDivisionError), open_savepoint(tx):
            _ = _noted(tx, job) / 0
        assert (tx.jobs.read(job).reason, tx.jobs.read(job).attempts) == ("before", 0)
    with rows.store.view() as tx:
        assert (tx.jobs.read(job).reason, tx.jobs.read(job).attempts) == ("before", 0)
