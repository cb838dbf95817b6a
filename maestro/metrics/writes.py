"""The writes of this process to the store in numbers: whether they succeed, and the connections that were lost."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from maestro.store.engine.database import WriteHistory


class StoreWrites:
    """The instruments for the history of writes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seen = WriteHistory()
        self._succeeded = Gauge(
            "maestro_store_last_write_timestamp_seconds",
            "When a write of this process to the store last succeeded, in seconds since 1970; 0 before the first.",
            registry=registry,
        )
        self._failures = Counter(
            "maestro_store_write_failures",
            "Writes of this process that the store did not take: locked for too long, or its disk full.",
            registry=registry,
        )
        self._replaced = Counter(
            "maestro_store_writers_replaced",
            "Writing connections of this process that were lost and replaced.",
            registry=registry,
        )

    def update(self, history: WriteHistory) -> None:
        """Count what happened since the last update."""
        self._succeeded.set(history.succeeded_at)
        self._failures.inc(history.failures - self._seen.failures)
        self._replaced.inc(history.replaced - self._seen.replaced)
        self._seen = history
