"""The writing connection of a process: how its writes went, and its replacement when it is lost."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, Thread, current_thread
from typing import Any

import structlog
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maestro.domain.errors import StoreBusy
from maestro.store.engine import DATABASE_ERRORS, driver_of, open_writer, store_failure

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WriteHistory:
    """How writing went in this process.

    The moments are seconds since 1970 and 0 for never, ``problem`` is why the last failed write failed, and
    ``replaced`` counts the writing connections that were lost.
    """

    succeeded_at: float = 0.0
    failed_at: float = 0.0
    problem: str = ""
    failures: int = 0
    replaced: int = 0

    @property
    def failing(self) -> bool:
        """Whether the last write failed."""
        return self.failed_at > self.succeeded_at


class Writer:
    """The pool of the one writing connection of a process; threads wait in it for each other.

    A thread that is interrupted inside of the pool can lose the connection: nobody holds it, and nobody gets it. It is
    replaced when a thread has waited in vain for a connection that no living thread holds, and none has given back
    meanwhile: one that was given back is with the thread that got it, which may not have said so yet.
    """

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._lock = Lock()
        self._holder: Thread | None = None
        self._given_back = 0
        self._driver: Any = None
        self.history = WriteHistory()
        self.engine = self._opened()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Give the connection, in a transaction that is committed at the end; raises ``StoreBusy``.

        Only a transaction that changed something counts as a successful write.
        """
        try:
            with self._held() as connection:
                driver = driver_of(connection)
                before = driver.total_changes
                with connection.begin():
                    yield connection
                changed = driver.total_changes != before
        except DATABASE_ERRORS as error:
            failure = store_failure(error, self._path)
            if failure is None:
                raise
            self._failed(failure)
            raise failure from None
        if changed:
            self._succeeded()

    def probe(self) -> None:
        """Write the header of the database as it is; raises ``StoreBusy`` when that cannot be done."""
        with self.begin() as connection:
            driver_of(connection).execute("PRAGMA user_version=0")
        self._succeeded()

    def close(self) -> None:
        """Close the connection."""
        self.engine.dispose()

    def _succeeded(self) -> None:
        with self._lock:
            self.history = replace(self.history, succeeded_at=time.time())

    def _failed(self, failure: StoreBusy) -> None:
        with self._lock:
            failures = self.history.failures + 1
            self.history = replace(self.history, failed_at=time.time(), problem=str(failure), failures=failures)

    @contextmanager
    def _held(self) -> Iterator[Connection]:
        with self._connected() as connection:
            self._holder = current_thread()
            try:
                yield connection
            finally:
                self._given_back += 1  # before there is no holder, or who has waited in vain takes it for lost
                self._holder = None

    def _connected(self) -> Connection:
        engine, given_back = self.engine, self._given_back
        try:
            return engine.connect()
        except PoolTimeout:
            if not self._replaced(engine, given_back):
                raise
        return self.engine.connect()

    def _opened(self) -> Engine:
        engine = open_writer(self._path, self._busy_seconds)
        event.listen(engine, "connect", self._remember)
        return engine

    def _remember(self, driver: Any, _record: Any) -> None:
        self._driver = driver

    def _replaced(self, waited_for: Engine, given_back: int) -> bool:
        """Replace the engine that a thread waited for; false where its connection is not lost.

        ``given_back`` is how often it had been given back when the thread began to wait.
        """
        with self._lock:
            if self.engine is not waited_for:
                return True
            if self._given_back != given_back or (self._holder is not None and self._holder.is_alive()):
                return False
            log.error("store.writer_replaced", waited_seconds=self._busy_seconds)
            with suppress(sqlite3.Error):
                self._driver.close()  # the transaction that it may be in would keep the next one from writing
            waited_for.dispose()
            self.history = replace(self.history, replaced=self.history.replaced + 1)
            self.engine = self._opened()
        return True
