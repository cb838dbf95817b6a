"""What works on batches, in every process that has to do with jobs."""

from collections.abc import Callable

from maestro.store.store import Store
from temporal.engine import Engine
from temporal.replays import BatchWork, TemporalJobControl


def build_batch_work(store: Store, engine: Engine, wake: Callable[[], None]) -> BatchWork:
    """Return what begins the jobs of batches; ``wake`` tells a dispatcher of this process, if there is one."""
    control = TemporalJobControl(store, engine.present, wake)
    return BatchWork(store, control.interrupt, wake)
