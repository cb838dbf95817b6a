"""What the command line works with: the store of the data folder and the control of jobs, beside a running Maestro."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from maestro.bootstrap.endpoints import dashboard_url, endpoint_of, temporal_ui_url
from maestro.bootstrap.storage import open_existing_store
from maestro.domain.jobs.replay import JobControl
from maestro.settings import Loaded
from maestro.store.store import Store
from temporal.client import connect_soon
from temporal.replays import TemporalJobControl

CONNECT_SECONDS = 3.0


@dataclass(frozen=True)
class Operator:
    """An operator's access; what it changes in the store is found by the dispatcher of the running Maestro.

    ``dashboard`` is where the pages are, empty where there are none.
    """

    store: Store
    control: JobControl
    temporal_ui_url: str
    namespace: str
    dashboard: str = ""


@contextlib.contextmanager
def open_operator(loaded: Loaded) -> Iterator[Operator]:
    """Open the store of an existing data folder; raises ``ConfigurationError`` when there is none."""
    store = open_existing_store(loaded.settings)
    endpoint = endpoint_of(loaded.settings)
    control = TemporalJobControl(store, lambda: connect_soon(endpoint, CONNECT_SECONDS), wake=lambda: None)
    try:
        settings = loaded.settings
        ui_url, pages = temporal_ui_url(settings), dashboard_url(settings)
        yield Operator(store, control, ui_url, settings.temporal.namespace, pages)
    finally:
        store.close()
