"""Groups of steps: one transaction, one by one where one fails, on record for a job that is older than its process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.errors import NoAgent, StepTaken
from maestro.domain.jobs.flow import MediaOutcome
from maestro.domain.jobs.job import JobStatus, StepRef
from maestro.domain.jobs.steps import RetryRules
from maestro.store.jobs.steps import OwnAttempt, TemporalAttempt
from temporal.attempts import StepFailure
from temporal.journal import Journal
from tests.support.job_rows import JobRows

RULES = RetryRules(
    provider_attempts=3, provider_base=1, platform_attempts=10, platform_base=1, own_attempts=5, crashes=3
)
STEPS = ("route", "conversation", "context")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


class Worker:
    """Runs steps as a worker does; ``broken`` names one that raises, ``seen`` what was on record as each began."""

    def __init__(self, rows: JobRows, broken: str = "") -> None:
        self._store = rows.store
        self._broken = broken
        self.tried = TemporalAttempt("run")
        self.journal = Journal(rows.store, lambda: RULES, lambda: self.tried)
        self.seen: list[list[tuple[str, str]]] = []
        self.parts: list[bool] = []

    def step(self, ref: StepRef) -> MediaOutcome:
        """Do a step that only writes to the store."""
        self.parts.append(self._store.is_writing)
        with self._store.begin(job=ref.job_id) as tx:
            self.seen.append([(row.step, row.state) for row in tx.jobs.steps.list_attempts_of_job(ref.job_id)])
            if ref.step == self._broken:
                raise NoAgent("nobody is there")
            return tx.jobs.steps.finish_step(ref, MediaOutcome(files=0))

    def prepare(self, job: str) -> list[MediaOutcome]:
        """Do all steps of a job together."""
        refs = [StepRef(job_id=job, step=name) for name in STEPS]
        return self.journal.run_together(job, lambda: [self.journal.run_store_step(self.step, ref) for ref in refs])


def kept(rows: JobRows, job: str) -> list[tuple[str, str]]:
    """Return the rows of a job's steps."""
    with rows.store.view() as tx:
        return [(row.step, row.state) for row in tx.jobs.steps.list_attempts_of_job(job)]


def test_a_group_is_one_transaction_and_every_step_has_its_row(rows: JobRows) -> None:
    worker = Worker(rows)
    job = rows.add()
    assert worker.prepare(job) == [MediaOutcome(files=0)] * 3
    assert worker.parts == [True] * 3
    assert kept(rows, job) == [(name, "done") for name in STEPS]
    assert worker.prepare(job) == [MediaOutcome(files=0)] * 3, "a repeat finds them done"
    assert len(worker.parts) == 3


def test_a_step_that_fails_fails_alone(rows: JobRows) -> None:
    worker = Worker(rows, broken="conversation")
    job = rows.add()
    with pytest.raises(StepFailure) as failure:
        worker.prepare(job)
    assert (failure.value.type, failure.value.details) == ("NoAgent", ("conversation",))
    assert kept(rows, job) == [("route", "done"), ("conversation", "failed")]


def test_a_job_whose_first_step_failed_is_prepared_in_one_transaction_when_that_is_tried_again(rows: JobRows) -> None:
    worker = Worker(rows, broken="route")
    job = rows.add()
    with pytest.raises(StepFailure):
        worker.prepare(job)
    again = Worker(rows)
    again.prepare(job)
    assert again.parts == [True] * 3
    assert kept(rows, job) == [("route", "failed"), *((name, "done") for name in STEPS)]


def test_the_steps_of_an_older_job_are_on_record_before_they_begin(rows: JobRows) -> None:
    job = rows.add()
    rows.clock.go(seconds=1)
    worker = Worker(rows)
    worker.prepare(job)
    assert worker.parts == [False] * 3
    assert [seen[-1] for seen in worker.seen] == [(name, "running") for name in STEPS]


def test_a_call_that_is_put_on_record_ahead_is_adopted_by_the_first_attempt_alone(rows: JobRows) -> None:
    worker = Worker(rows)
    ref = StepRef(job_id=rows.add(), step="model-1")
    with rows.store.begin() as tx:
        tx.jobs.mark_started(ref.job_id)
        worker.journal.record_next_attempt(ref, "call_model")
    worker.tried = TemporalAttempt("run", 1)
    with rows.store.view() as tx:
        assert worker.journal.adopt_recorded_attempt(tx, ref) == OwnAttempt(ref, 1)
    worker.tried = TemporalAttempt("run", 2)
    with rows.store.view() as tx:
        assert worker.journal.adopt_recorded_attempt(tx, ref) is None
    assert isinstance(worker.journal.begin_attempt(ref, "call_model"), OwnAttempt)
    assert kept(rows, ref.job_id) == [("model-1", "interrupted"), ("model-1", "running")]
    worker.tried = TemporalAttempt("run", 1)
    with pytest.raises(StepTaken):
        worker.journal.begin_attempt(ref, "call_model")


def test_a_stale_attempt_does_not_start_the_next_run_of_an_older_job(rows: JobRows) -> None:
    job = rows.add()
    rows.clock.go(seconds=1)
    worker = Worker(rows)
    worker.tried = TemporalAttempt("first run", 1)
    worker.journal.begin_attempt(StepRef(job_id=job, step="route"), "choose_agent")
    with rows.store.begin() as tx:
        row = tx.jobs.get(job)
        row.status, row.run = JobStatus.PENDING, 2
    with pytest.raises(StepFailure) as failure:
        worker.prepare(job)
    assert failure.value.type == "StepTaken"
    with rows.store.view() as tx:
        assert tx.jobs.read(job).status is JobStatus.PENDING
