"""All metrics of one process, in the text format of Prometheus."""

import platform
from collections.abc import Callable, Iterator, Mapping
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

from maestro.domain.errors import StoreBusy
from maestro.domain.health import OK
from maestro.domain.release import release
from maestro.metrics.jobs import EndedJobs, Ledger, WaitingJobs
from maestro.metrics.labels import ModelCalls, StoreWrites, Traffic
from maestro.store.store import Clock, Store, utc_now

STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
"""Seconds."""

log = structlog.get_logger(__name__)


class ProcessMetrics:
    """One registry for each process that is composed, never the library's own, which is the interpreter's.

    What the store knows is the same in every process that uses it; steps, checks and the use of the machine are this
    process's own.
    """

    def __init__(self, store: Store, command: str, max_pending: Callable[[], int], clock: Clock = utc_now) -> None:
        """Start counting; this reads the store. ``command`` is what started the process, such as ``worker``."""
        self._registry = registry = CollectorRegistry()
        self._clock = clock
        self._reading = Lock()
        self._ledger = Ledger(store)
        self._waiting = WaitingJobs(registry, max_pending)
        self._ended = EndedJobs(registry)
        self._calls = ModelCalls(registry)
        self._traffic = Traffic(registry)
        self._steps = Histogram(
            "maestro_step_duration_seconds",
            "Time that attempts at steps took in this process, by how they ended.",
            ["step", "outcome"],
            buckets=STEP_BUCKETS,
            registry=registry,
        )
        self._scans_failed = Counter(
            "maestro_scan_errors_total",
            "Texts that this process could not search for secrets whole.",
            registry=registry,
        )
        self._writes = StoreWrites(registry)
        self._store = store
        self._checks = Gauge(
            "maestro_check_ok",
            "Whether a check of /readyz is ok: 1, or 0 with a problem.",
            ["check"],
            registry=registry,
        )
        Info("maestro_build", "Which Maestro this is.", registry=registry).info(
            {"version": release(), "command": command, "python": platform.python_version()}
        )
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)

    def step(self, name: str, outcome: str, seconds: float) -> None:
        """Count an attempt at a step; may be called from any thread."""
        self._steps.labels(name, outcome).observe(seconds)

    def scan_failed(self) -> None:
        """Count a text that could not be scanned completely; may be called from any thread."""
        self._scans_failed.inc()

    def render(self, checks: Mapping[str, str]) -> bytes:
        """Return all metrics; while the store does not answer, its last figures are repeated and a check fails."""
        with self._reading:
            self._checks.clear()
            for check, state in checks.items():
                self._checks.labels(check).set(state == OK)
            self._writes.update(self._store.writes)
            try:
                self._read()
            except StoreBusy as error:
                self._checks.labels("store").set(0)
                log.warning("metrics.store", problem=str(error))
            return generate_latest(_WithoutBirthdays(self._registry))

    def _read(self) -> None:
        news = self._ledger.read()
        self._waiting.update(news.open_jobs, self._clock())
        self._ended.update(news.ended)
        self._calls.update(news.calls, news.calls_open)
        self._calls.spending(news.spending)
        self._traffic.update(news)


class _WithoutBirthdays:
    """A registry without the creation times of counters, which the text format would show as metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
