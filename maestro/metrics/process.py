"""All metrics of one process in the text format of Prometheus, including metrics read from the store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from platform import python_version
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
from maestro.domain.health import OK, QueueSlots
from maestro.domain.release import release
from maestro.metrics.instruments import JobMetrics, MessageMetrics, MetricCursor, ModelCallMetrics, StoreWriteMetrics
from maestro.store.store import Clock, Store, utc_now

STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
"""The upper limits of the histogram's buckets for the duration of a step, in seconds."""

TRACE_OUTCOMES = ("sent", "refused", "expired")

log = structlog.get_logger(__name__)


class ProcessMetrics:
    """The metrics of one process, in their own registry instead of the global registry of prometheus_client.

    Metrics read from the store are the same in every process that uses the store. Metrics of steps, checks and the
    machine concern this process only.
    """

    def __init__(self, store: Store, command: str, max_pending: Callable[[], int], clock: Clock = utc_now) -> None:
        """Start counting; this reads the store. ``command`` is the command of the process, such as ``worker``."""
        self._registry = registry = CollectorRegistry()
        self._clock = clock
        self._reading = Lock()
        self._cursor = MetricCursor(store)
        self._jobs = JobMetrics(registry, max_pending)
        self._calls = ModelCallMetrics(registry)
        self._traffic = MessageMetrics(registry)
        self._steps = Histogram(
            "maestro_step_duration_seconds",
            "Duration of attempts at steps in this process, by step and outcome: done, failed, cancelled.",
            ["step", "outcome"],
            buckets=STEP_BUCKETS,
            registry=registry,
        )
        self._scans_failed = Counter(
            "maestro_scan_errors_total",
            "Texts that this process could not scan completely for secrets: too slow, or a wrong pattern.",
            registry=registry,
        )
        self._traces = _count_of_traces(registry)
        self._retired = _count_of_deletions(registry)
        self._writes = StoreWriteMetrics(registry)
        self._slots = _gauge_of_slots(registry)
        self.list_slots: Callable[[], Sequence[QueueSlots]] = tuple
        """The function that returns the slots of this process's workers."""
        self._store = store
        self._checks = Gauge(
            "maestro_check_ok",
            "The result of each check of /readyz: 1 if it is ok, 0 if not.",
            ["check"],
            registry=registry,
        )
        Info("maestro_build", "The versions of Maestro and Python, and the command.", registry=registry).info(
            {"version": release(), "command": command, "python": python_version()}
        )
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)

    def count_step(self, name: str, outcome: str, seconds: float) -> None:
        """Count an attempt at a step; may be called from any thread."""
        self._steps.labels(name, outcome).observe(seconds)

    def count_traces(self, outcome: str, traces: int) -> None:
        """Count traces by the outcome of their export; may be called from any thread."""
        self._traces.labels(outcome).inc(traces)

    def count_retired(self, kind: str, number: int) -> None:
        """Count rows that retention deleted; may be called from any thread."""
        self._retired.labels(kind).inc(number)

    def count_failed_scan(self) -> None:
        """Count a text that could not be scanned completely; may be called from any thread."""
        self._scans_failed.inc()

    def _update_slots(self) -> None:
        for slots in self.list_slots():
            self._slots.labels(slots.queue, slots.kind, "used").set(slots.used)
            self._slots.labels(slots.queue, slots.kind, "free").set(max(slots.limit - slots.used, 0))

    def render(self, checks: Mapping[str, str]) -> bytes:
        """Return all metrics as text; while the store is busy, its last figures are repeated and its check is 0."""
        with self._reading:
            self._checks.clear()
            for check, state in checks.items():
                self._checks.labels(check).set(state == OK)
            self._writes.update_metrics(self._store.write_history)
            self._update_slots()
            try:
                changes = self._cursor.read_changes()
                self._jobs.update_metrics(changes, self._clock())
                self._calls.update_metrics(changes)
                self._traffic.update_metrics(changes)
            except StoreBusy as error:
                self._checks.labels("store").set(0)
                log.warning("metrics.store", problem=str(error))
            return generate_latest(_RegistryWithoutCreationTimes(self._registry))


def _count_of_deletions(registry: CollectorRegistry) -> Counter:
    explanation = "Rows that retention deleted: conversations, jobs, jobs without the texts of their calls, inbox."
    return Counter("maestro_retention_deleted", explanation, ["kind"], registry=registry)


def _gauge_of_slots(registry: CollectorRegistry) -> Gauge:
    explanation = (
        "Slots for activities of this process by queue and kind (activity; local: inside a workflow task): used, free."
    )
    return Gauge("maestro_worker_slots", explanation, ["queue", "kind", "state"], registry=registry)


def _count_of_traces(registry: CollectorRegistry) -> Counter:
    traces = Counter(
        "maestro_traces_exported",
        "Traces of jobs by the outcome of their export: sent, refused (by the collector), expired (given up).",
        ["outcome"],
        registry=registry,
    )
    for outcome in TRACE_OUTCOMES:  # Prometheus sees no increase in a series that starts at 1.
        traces.labels(outcome)
    return traces


class _RegistryWithoutCreationTimes:
    """A registry without the creation times of counters, which the text format would show as metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
