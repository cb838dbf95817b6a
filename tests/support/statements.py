"""Counts the statements of a transaction, for tests that hold how many an operation of a repository runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from maestro.store.transaction import Transaction


@contextmanager
def statements(tx: Transaction) -> Iterator[list[str]]:
    """Collect what the driver runs within the block, in order.

    SQLite reports the statement of a trigger as that which fired it, once more; such a repetition is left out.
    """
    found: list[str] = []

    def seen(sql: str) -> None:
        if not found or found[-1] != sql:
            found.append(sql)

    tx._link.driver.set_trace_callback(seen)
    try:
        yield found
    finally:
        tx._link.driver.set_trace_callback(None)
