"""All metrics of one process in the text format of Prometheus, including those that are read from the store."""

import platform
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from threading import Lock

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    Metric,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from maestro.domain.errors import Quarantined, StoreBusy
from maestro.domain.health import OK
from maestro.domain.jobs.job import OPEN, JobStatus
from maestro.domain.llm.budgets import BudgetScope
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.errors import BudgetExceeded
from maestro.domain.release import release
from maestro.metrics.labels import LabelValues, MessageMetrics, ModelCallMetrics, StoreWriteMetrics
from maestro.store.overviews.figures import UNDER_WAY, EndedJob, MetricChanges, OpenJobs
from maestro.store.store import Clock, Store, utc_now

ANSWER_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
"""The upper limits of the histogram's buckets for the duration of a job, in seconds."""

STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
"""The upper limits of the histogram's buckets for the duration of a step, in seconds."""

log = structlog.get_logger(__name__)


class MetricCursor:
    """The position up to which messages, jobs, calls and chunks of all processes were counted.

    Each row is counted once. Present table contents are no counters: a resumed job is no longer failed, and old rows
    may be deleted. Creation and reads are short transactions; two threads must not read at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.view() as tx:
            self._marks = tx.system.figures.marks()
            self._open_positions: Collection[int] = tx.system.figures.open_jobs().by_position.keys()
            self._calls = tx.system.figures.open_calls()
            self._deliveries = tx.system.figures.open_deliveries()
            self._ignored = tx.inbox.ignored.by_reason()

    def read(self) -> MetricChanges:
        """Return the changes since the last read; after a ``StoreBusy``, the next read includes them."""
        with self._store.view() as tx:
            figures = tx.system.figures
            marks, open_jobs = figures.marks(), figures.open_jobs()
            gone = [position for position in self._open_positions if position not in open_jobs.by_position]
            ended = figures.ended_jobs(self._marks.position, gone)
            received = figures.received(self._marks.inbox)
            calls = figures.calls(self._marks.call, self._calls)
            deliveries = figures.deliveries(self._marks.delivery, self._deliveries)
            connectors = figures.connectors()
            ignored = tx.inbox.ignored.by_reason()
            spending = tx.llm.budgets.level((BudgetScope.DAY, ""))
        self._marks, self._open_positions = marks, open_jobs.by_position.keys()
        before, self._ignored = self._ignored, ignored
        self._calls = {call.id for call in calls if call.state is CallState.SENT}
        self._deliveries = {chunk.id for chunk in deliveries if chunk.state in UNDER_WAY}
        return MetricChanges(
            open_jobs=open_jobs,
            calls_open=len(self._calls),
            deliveries_open=len(self._deliveries),
            connectors=connectors,
            received=received,
            ignored={reason: count - before.get(reason, 0) for reason, count in ignored.items()},
            ended=ended,
            calls=[call for call in calls if call.id not in self._calls],
            deliveries=[chunk for chunk in deliveries if chunk.id not in self._deliveries],
            spending=spending,
        )


class OpenJobMetrics:
    """The instruments for open jobs."""

    def __init__(self, registry: CollectorRegistry, max_pending: Callable[[], int]) -> None:
        gauge = partial(Gauge, registry=registry)
        self._open = gauge("maestro_jobs", "Jobs that have not ended, by status.", ["status"])
        self._oldest = gauge(
            "maestro_jobs_oldest_pending_age_seconds",
            "Age of the job that has waited longest for its first start; 0 when none waits.",
        )
        self._limit = gauge(
            "maestro_jobs_pending_limit", "Pending jobs beyond which new messages are refused (jobs.maxPending)."
        )
        self._max_pending = max_pending

    def update(self, jobs: OpenJobs, now: datetime) -> None:
        """Set the number of open jobs, the age of the oldest pending job, and the limit of pending jobs."""
        self._limit.set(self._max_pending())
        counted = Tally(jobs.by_position.values())
        for status in OPEN:
            self._open.labels(status).set(counted[status])
        age = (now - jobs.oldest_pending).total_seconds() if jobs.oldest_pending else 0
        self._oldest.set(max(age, 0))  # an age is not negative, even if the system clock was set back


class EndedJobMetrics:
    """The instruments for ended jobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._errors = LabelValues()
        self._ended = counter("maestro_jobs_ended", "Jobs that ended, by status.", ["status"])
        self._failures = counter("maestro_job_failures", "Jobs that failed, by the class of their error.", ["error"])
        self._skipped = counter(
            "maestro_schedule_runs_skipped",
            "Runs of schedules that were skipped because no model could be called, by error class.",
            ["reason"],
        )
        self._durations = Histogram(
            "maestro_job_duration_seconds",
            "Time from the arrival of a job to its end, of completed jobs; waiting included.",
            buckets=ANSWER_BUCKETS,
            registry=registry,
        )
        # Every series starts at 0, because Prometheus sees no increase in a series that starts at 1.
        for status in filter(lambda status: status.ended, JobStatus):
            self._ended.labels(status)
        self._failures.labels(self._errors.value(Quarantined.__name__))
        self._skipped.labels(self._errors.value(BudgetExceeded.__name__))

    def update(self, jobs: Iterable[EndedJob]) -> None:
        """Count the jobs by status and error, and observe the duration of completed jobs."""
        for job in jobs:
            self._ended.labels(job.status).inc()
            if job.status is JobStatus.FAILED:
                self._failures.labels(self._errors.value(job.error)).inc()
            if job.status is JobStatus.DROPPED and job.error:
                self._skipped.labels(self._errors.value(job.error)).inc()
            if job.status is JobStatus.COMPLETED:
                self._durations.observe(max(job.took.total_seconds(), 0))


class ProcessMetrics:
    """The metrics of one process, in a registry of their own instead of the global one of prometheus_client.

    Metrics that are read from the store are the same in every process that uses it; those of steps, checks and the
    machine are this process's own.
    """

    def __init__(self, store: Store, command: str, max_pending: Callable[[], int], clock: Clock = utc_now) -> None:
        """Start counting; this reads the store. ``command`` is the command of the process, such as ``worker``."""
        self._registry = registry = CollectorRegistry()
        self._clock = clock
        self._reading = Lock()
        self._cursor = MetricCursor(store)
        self._waiting = OpenJobMetrics(registry, max_pending)
        self._ended = EndedJobMetrics(registry)
        self._calls = ModelCallMetrics(registry)
        self._traffic = MessageMetrics(registry)
        self._steps = Histogram(
            "maestro_step_duration_seconds",
            "Duration of attempts at steps in this process, by step and outcome.",
            ["step", "outcome"],
            buckets=STEP_BUCKETS,
            registry=registry,
        )
        self._scans_failed = Counter(
            "maestro_scan_errors_total",
            "Texts that this process could not scan completely for secrets.",
            registry=registry,
        )
        self._writes = StoreWriteMetrics(registry)
        self._store = store
        self._checks = Gauge(
            "maestro_check_ok",
            "The result of each check of /readyz: 1 if it is ok, 0 if not.",
            ["check"],
            registry=registry,
        )
        Info("maestro_build", "The versions of Maestro and Python, and the command.", registry=registry).info(
            {"version": release(), "command": command, "python": platform.python_version()}
        )
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)

    def count_step(self, name: str, outcome: str, seconds: float) -> None:
        """Count an attempt at a step; may be called from any thread."""
        self._steps.labels(name, outcome).observe(seconds)

    def count_failed_scan(self) -> None:
        """Count a text that could not be scanned completely; may be called from any thread."""
        self._scans_failed.inc()

    def render(self, checks: Mapping[str, str]) -> bytes:
        """Return all metrics; while the store does not answer, its last figures are repeated and its check is 0."""
        with self._reading:
            self._checks.clear()
            for check, state in checks.items():
                self._checks.labels(check).set(state == OK)
            self._writes.update(self._store.writes)
            try:
                changes = self._cursor.read()
                self._waiting.update(changes.open_jobs, self._clock())
                self._ended.update(changes.ended)
                self._calls.update(changes)
                self._traffic.update(changes)
            except StoreBusy as error:
                self._checks.labels("store").set(0)
                log.warning("metrics.store", problem=str(error))
            return generate_latest(_RegistryWithoutCreationTimes(self._registry))


class _RegistryWithoutCreationTimes:
    """A registry without the creation times of counters, which the text format would show as metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
