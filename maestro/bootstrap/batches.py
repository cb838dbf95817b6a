"""What works on batches, in every process that has to do with jobs."""

from collections.abc import Callable

from maestro.store.store import Store
from temporal.batches import BatchWork
from temporal.control import TemporalJobControl
from temporal.engine import Engine


def build_batch_work(store: Store, engine: Engine, wake: Callable[[], None]) -> BatchWork:
    """Return what begins the jobs of batches; ``wake`` tells a dispatcher of this process, if there is one."""
    control = TemporalJobControl(store, engine.present, wake)
    return BatchWork(store, control.interrupt, wake)
