"""Imports of large libraries."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Exclude the imported objects from garbage collection, during the import and permanently.

    An import adds objects and drops few: collections in between took a fifth to a quarter of its CPU time. Later each
    full collection would scan the imported objects and stop every message of the process for a quarter of a second
    (measured with litellm: 4 % of the CPU time under load).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
