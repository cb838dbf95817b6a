"""Builds the background work that one process at a time does for all: retention, and the export of traces."""

from functools import partial
from importlib import import_module
from typing import Any

from maestro.domain.errors import ConfigurationError
from maestro.installation.storage import open_files
from maestro.metrics.process import ProcessMetrics
from maestro.operations.conversations import remove_discarded_files
from maestro.operations.retention import RetentionService
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from maestro.supervision import Service


def build_maintenance(store: Store, live: LiveSettings, metrics: ProcessMetrics) -> list[Service]:
    """Return the services of the background work; raises ``ConfigurationError`` if a library is missing."""
    settings = live.start
    remove_files = partial(remove_discarded_files, store, settings.data_dir, open_files(settings))
    retention = live.of(lambda settings: settings.retention)
    services = [RetentionService(store, retention, remove_files, metrics.count_retired).run()]
    if settings.telemetry.enabled:
        telemetry = _import_telemetry()
        collector = telemetry.Collector(settings.telemetry)
        exported = live.of(lambda settings: settings.telemetry)
        services.append(telemetry.TraceExport(store, exported, collector, metrics.count_traces).run())
    return services


def _import_telemetry() -> Any:
    """Import the export of traces only where it is used: its library is optional, and takes a fifth of a second."""
    try:
        return import_module("maestro.telemetry")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("opentelemetry", "requests")):
            raise
        raise ConfigurationError(
            "telemetry.enabled needs libraries that are not installed: install maestro-agents[telemetry], or "
            "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http beside Maestro. Maestro's container image "
            "has them."
        ) from None
