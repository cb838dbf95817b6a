"""How traces are exported: each once, by one process, with nothing lost but what is too old."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.jobs.job import JobStatus
from maestro.domain.jobs.traces import TraceSpan
from maestro.domain.settings.telemetry import TelemetrySettings
from maestro.store.store import Store
from maestro.telemetry import CLAIM, JOBS, KEPT, LOOK_BACK, ExportOutcome, TraceExport
from tests.support.job_rows import JobRows


class ScriptedCollector:
    """A collector that answers as told, and remembers the jobs whose root spans it took."""

    problem = "as told"

    def __init__(self) -> None:
        self.outcome = ExportOutcome.SENT
        self.jobs: list[object] = []

    def send(self, spans: Sequence[TraceSpan]) -> ExportOutcome:
        if self.outcome is ExportOutcome.SENT:
            self.jobs += [span.attributes["maestro.job.id"] for span in spans if span.parent is None]
        return self.outcome

    def close(self) -> None: ...


class Exporting:
    """A store with jobs, the process that exports their traces, and what it counted."""

    def __init__(self, folder: Path) -> None:
        self.rows = JobRows.at(folder)
        self.collector = ScriptedCollector()
        self.counted: Counter[str] = Counter()
        self.ratio = 1.0
        self.first = self.process("worker@one:1")

    def process(self, name: str) -> TraceExport:
        """Return the exporter of one more process."""
        store = Store(self.rows.store.location, self.rows.clock)
        store.process = name
        settings = TelemetrySettings(enabled=True)
        return TraceExport(
            store,
            lambda: settings.model_copy(update={"sample_ratio": self.ratio}),
            self.collector,  # type: ignore[arg-type]
            lambda outcome, traces: self.counted.update({outcome: traces}),
        )

    def job(self, status: JobStatus = JobStatus.COMPLETED) -> str:
        return self.rows.end(self.rows.add(), status)


@pytest.fixture
def exporting(tmp_path: Path) -> Iterator[Exporting]:
    made = Exporting(tmp_path)
    made.first.export_batch()
    yield made
    made.rows.store.close()


def test_each_job_is_exported_once_when_it_has_ended(exporting: Exporting) -> None:
    pending, done = exporting.rows.add(), exporting.job()
    assert exporting.first.export_batch() is ExportOutcome.SENT
    assert exporting.first.export_batch() is None
    exporting.rows.end(pending, JobStatus.FAILED)
    exporting.first.export_batch()
    assert exporting.collector.jobs == [done, pending]


def test_jobs_that_ended_before_the_first_export_are_left_alone(tmp_path: Path) -> None:
    exporting = Exporting(tmp_path)
    exporting.job()
    exporting.rows.clock.go(seconds=LOOK_BACK.total_seconds() + 1)
    assert exporting.first.export_batch() is None
    new = exporting.job()
    exporting.first.export_batch()
    assert exporting.collector.jobs[-1] == new


def test_an_end_that_becomes_visible_late_is_exported(exporting: Exporting) -> None:
    late = exporting.rows.add()
    newer = exporting.job()
    exporting.first.export_batch()
    clock = exporting.rows.clock
    now = clock.now
    clock.now = now - LOOK_BACK / 2  # another host, whose clock is behind
    exporting.rows.end(late, JobStatus.COMPLETED)
    clock.now = now
    exporting.first.export_batch()
    assert exporting.collector.jobs == [newer, late]


def test_more_jobs_than_one_request_takes_are_exported_in_order(exporting: Exporting) -> None:
    jobs = [exporting.job() for _ in range(2 * JOBS + 3)]
    while exporting.first.export_batch() is not None:
        pass
    assert exporting.collector.jobs == jobs


def test_one_process_exports_and_another_takes_over_when_it_is_gone(exporting: Exporting) -> None:
    second = exporting.process("worker@two:2")
    first = exporting.job()
    assert second.export_batch() is None
    exporting.first.export_batch()
    later = exporting.job()
    exporting.rows.clock.go(seconds=CLAIM.total_seconds())
    assert second.export_batch() is ExportOutcome.SENT
    assert exporting.first.export_batch() is None
    assert exporting.collector.jobs == [first, later]


def test_a_resumed_job_is_exported_again_with_the_same_ids(exporting: Exporting) -> None:
    job = exporting.job(JobStatus.FAILED)
    exporting.first.export_batch()
    with exporting.rows.store.begin() as tx:
        tx.jobs.reopen_job(tx.jobs.get(job))
    exporting.rows.end(job, JobStatus.COMPLETED)
    exporting.first.export_batch()
    assert exporting.collector.jobs == [job, job]


def test_while_the_collector_is_away_nothing_is_given_up(exporting: Exporting) -> None:
    exporting.collector.outcome = ExportOutcome.AWAY
    job = exporting.job()
    assert exporting.first.export_batch() is ExportOutcome.AWAY
    exporting.rows.clock.go(hours=5)
    exporting.collector.outcome = ExportOutcome.SENT
    exporting.first.export_batch()
    assert (exporting.collector.jobs, exporting.counted) == ([job], {"sent": 1})


def test_what_the_collector_refuses_is_counted_and_stops_nothing(exporting: Exporting) -> None:
    exporting.collector.outcome = ExportOutcome.REFUSED
    exporting.job()
    exporting.first.export_batch()
    exporting.collector.outcome = ExportOutcome.SENT
    job = exporting.job()
    exporting.first.export_batch()
    assert (exporting.collector.jobs, exporting.counted) == ([job], {"refused": 1, "sent": 1})


def test_traces_that_no_collector_took_for_a_day_are_given_up_and_counted(exporting: Exporting) -> None:
    exporting.collector.outcome = ExportOutcome.AWAY
    exporting.job()
    exporting.first.export_batch()
    exporting.rows.clock.go(seconds=(KEPT + timedelta(minutes=1)).total_seconds())
    exporting.collector.outcome = ExportOutcome.SENT
    job = exporting.job()
    exporting.first.export_batch()
    assert (exporting.collector.jobs, exporting.counted) == ([job], {"expired": 1, "sent": 1})


def test_a_ratio_of_zero_exports_failed_jobs_only(exporting: Exporting) -> None:
    exporting.ratio = 0
    exporting.job()
    failed = exporting.job(JobStatus.FAILED)
    exporting.first.export_batch()
    assert exporting.collector.jobs == [failed]


def test_without_news_nothing_is_written(exporting: Exporting) -> None:
    exporting.job()
    exporting.first.export_batch()
    mark = exporting.rows.store.mark()
    exporting.first.export_batch()
    assert exporting.rows.store.mark() == mark
