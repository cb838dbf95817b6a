"""Counts the statements of a transaction, for tests that hold how many an operation of a repository runs."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from maestro.store.engine.round_trips import StoreConnection
from maestro.store.transaction import Transaction


@contextmanager
def statements(tx: Transaction) -> Iterator[list[str]]:
    """Collect what the driver runs within the block, in order, with the values in it."""
    driver: Any = tx._link.driver
    with (_traced if isinstance(driver, sqlite3.Connection) else _recorded)(driver) as found:
        yield found


@contextmanager
def _traced(driver: sqlite3.Connection) -> Iterator[list[str]]:
    """Collect what SQLite runs; it reports the statement of a trigger as that which fired it, once more."""
    found: list[str] = []

    def seen(sql: str) -> None:
        if not found or found[-1] != sql:
            found.append(sql)

    driver.set_trace_callback(seen)
    try:
        yield found
    finally:
        driver.set_trace_callback(None)


@contextmanager
def _recorded(driver: StoreConnection) -> Iterator[list[str]]:
    """Collect what cursors of PostgreSQL's driver run."""
    found: list[str] = []
    before: type[psycopg.Cursor[Any]] = driver.cursor_factory

    class Recording(before):  # type: ignore[misc, valid-type]
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            self._record(query, params)
            return super().execute(query, params, **options)

        def queue(self, query: Any, params: Any) -> None:
            self._record(query, params)
            super().queue(query, params)

        def _record(self, query: Any, params: Any) -> None:
            with psycopg.ClientCursor(driver) as writing:
                found.append(writing.mogrify(query, params))

    driver.send_deferred()
    driver.cursor_factory = Recording
    try:
        yield found
        driver.send_deferred()
    finally:
        driver.cursor_factory = before
