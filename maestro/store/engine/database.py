"""The connections to the database: one writer per process, several readers, and a reserve file for a full disk.

See docs/invariants.md: transactions.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, Thread, current_thread
from typing import Any, cast

import structlog
from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maestro.domain.errors import StoreBusy, StoreDamaged, StoreFull

BUSY_SECONDS = 30.0
"""The most seconds that a transaction waits for the database's lock, or that a thread waits for a connection."""
READERS = 8
CACHED_STATEMENTS = 512
"""The number of compiled statements that the driver caches; one message needs more than the default of 128."""
OBSERVER_SECONDS = 2.0
DATABASE_ERRORS = (DatabaseError, sqlite3.DatabaseError, PoolTimeout)
"""The database errors of SQLAlchemy and of the SQLite driver."""
PRIMARY_CODE = 0xFF
"""The bits of an extended result code of SQLite that contain the primary code."""

_NOT_UTF_8 = "Could not decode to UTF-8"
"""The first words of the driver's error for a text that is not UTF-8; this error has no result code."""

RESCUE = (
    "End Maestro, keep a copy of the file together with its -wal file, and restore a backup, or save what "
    "`sqlite3 FILE .recover` can."
)

RESERVE_BYTES = 512 * 1024
"""Bytes for ten commits of an answer; the file has random content, because a file system may not store zeros."""
LOOK_SECONDS = 10.0
"""The fewest seconds between two attempts to create the reserve file again."""

log = structlog.get_logger(__name__)

MARK_BUSY_SECONDS = 5.0


def open_writer(path: Path, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return the engine for writing, with a pool of one connection.

    A thread waits for the connection in Python and is woken at once, instead of polling the lock of SQLite.
    """
    # ``secure_delete`` overwrites deleted content; its default differs between builds of SQLite.
    pragmas = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
    return create_database_engine(path, begin="BEGIN IMMEDIATE", pragmas=pragmas, size=1, busy_seconds=busy_seconds)


def open_readers(path: Path) -> Engine:
    """Return the engine for reading; its connections cannot write and never block a writer.

    Only the writer sets the journal mode. SQLite refuses a change of the mode at once, despite any timeout, while
    another process creates the database.
    """
    return create_database_engine(path, begin="BEGIN", pragmas=("query_only=ON",), size=READERS)


def open_observer(path: Path) -> Engine:
    """Return the engine for an inspection that creates and changes no file.

    After a clean shutdown there is no write-ahead log, and SQLite would create one even for reading. The file is then
    opened as immutable. If there is a log, a process may be writing, and SQLite reads the log and the file.
    """
    settled = not path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?{'immutable=1' if settled else 'mode=ro'}"

    def connect_read_only() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=OBSERVER_SECONDS, check_same_thread=False)

    return create_engine("sqlite://", creator=connect_read_only, poolclass=NullPool, hide_parameters=True)


def driver_connection(connection: Connection) -> sqlite3.Connection:
    """Return the connection of the SQLite driver that a SQLAlchemy connection wraps."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def store_failure(error: Exception, path: Path) -> StoreBusy | None:
    """Convert a database error to an error of the store, whose message has no SQL statement.

    Returns None for an error about the written values, such as a violated constraint.
    """
    cause = error.orig if isinstance(error, DatabaseError) else error
    if damaged := describe_damage(path, cause):
        return StoreDamaged(damaged)
    if not isinstance(cause, (sqlite3.OperationalError, PoolTimeout)):
        return None
    if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StoreFull(f"the store did not answer: {cause}. Free some space on its disk.")
    return StoreBusy(f"the store did not answer: {cause}. Check its disk, and which other programs use the database.")


def describe_damage(path: Path, cause: BaseException | None) -> str:
    """Return a description of the damage that a database error reports, and its repair; empty for other errors."""
    if str(cause).startswith(_NOT_UTF_8):
        # The driver's message would quote the invalid text.
        problem = "a text in it is not UTF-8"
    elif (getattr(cause, "sqlite_errorcode", 0) & PRIMARY_CODE) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        problem = str(cause)
    else:
        return ""
    return f"the database {path} is damaged: {problem}. {RESCUE}"


def create_database_engine(
    path: Path, begin: str, pragmas: tuple[str, ...], size: int, busy_seconds: float = BUSY_SECONDS
) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=QueuePool,
        hide_parameters=True,  # Errors must not quote the parameters of statements, which contain messages of users.
        pool_size=size,
        pool_use_lifo=True,  # The connection that was used last has warm caches of pages and statements.
        max_overflow=0,
        pool_timeout=busy_seconds,
        connect_args={"check_same_thread": False, "timeout": busy_seconds, "cached_statements": CACHED_STATEMENTS},
    )

    @event.listens_for(engine, "connect")
    def prepare_connection(connection: Any, _record: Any) -> None:
        # None stops the driver from beginning transactions by itself; ``begin_transaction`` begins them.
        connection.isolation_level = None
        for pragma in (f"busy_timeout={round(busy_seconds * 1000)}", *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.execute(begin)  # The driver's call saves the cost of a SQLAlchemy result.

    return engine


class Reserve:
    """The reserve file, deleted to free space when the disk is full; ``path`` is the path of the database.

    All processes that use the database share the file. Only a process that called ``create`` creates the file, again
    after each release.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}-reserve")
        self._look_at = 0.0
        self._wanted = False

    @property
    def is_missing(self) -> bool:
        """Whether this process maintains the reserve file but the file does not exist."""
        return self._wanted and not self._path.exists()

    def create(self) -> None:
        """Create the reserve file, and from now on create it again after each release."""
        self._wanted = True
        self.restore()

    def release(self) -> bool:
        """Delete the reserve file to free its space; return false if there was no file."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        log.error("store.reserve_given_up", file=str(self._path), free_bytes=RESERVE_BYTES)
        return True

    def restore(self) -> None:
        """Create the reserve file if it is missing and the disk has room for twice its size."""
        if not self._wanted or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        if not self.is_missing:
            return
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            if shutil.disk_usage(self._path.parent).free > 2 * RESERVE_BYTES:
                write_file(fresh, os.urandom(RESERVE_BYTES))
                fresh.replace(self._path)
        except OSError as error:
            log.warning("store.no_reserve", file=str(self._path), reason=error.strerror)
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class WriteHistory:
    """The outcomes of this process's writes to the database.

    Times are seconds since 1970, and 0 means never. ``problem`` is the reason of the last failed write. ``replaced``
    counts the writing connections that were lost and replaced.
    """

    succeeded_at: float = 0.0
    failed_at: float = 0.0
    problem: str = ""
    failures: int = 0
    replaced: int = 0

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed."""
        return self.failed_at > self.succeeded_at


class Writer:
    """The pool of a process's only writing connection, for which threads queue.

    If a thread is interrupted inside the pool, the connection can be lost: no thread holds it, and none can get it. The
    connection counts as lost when a thread timed out waiting for it, no living thread holds it, and no thread returned
    it meanwhile. A thread that just got a returned connection may not be registered as its holder yet.
    """

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._lock = Lock()
        self._holder: Thread | None = None
        self._given_back = 0
        self._driver: Any = None
        self.history = WriteHistory()
        self.engine = self._open()

    @contextmanager
    def begin_transaction(self) -> Iterator[Connection]:
        """Yield the connection in a transaction, which is committed at the end of the block; raises ``StoreBusy``.

        Only a transaction that changed rows counts as a successful write.
        """
        try:
            with self._hold_connection() as connection:
                driver = driver_connection(connection)
                before = driver.total_changes
                with connection.begin():
                    yield connection
                changed = driver.total_changes != before
        except DATABASE_ERRORS as error:
            failure = store_failure(error, self._path)
            if failure is None:
                raise
            self._record_failure(failure)
            raise failure from None
        if changed:
            self._record_success()

    def test_write(self) -> None:
        """Test that the database can be written, by rewriting its header unchanged; raises ``StoreBusy`` if not."""
        with self.begin_transaction() as connection:
            driver_connection(connection).execute("PRAGMA user_version=0")
        self._record_success()

    def close(self) -> None:
        self.engine.dispose()

    def _record_success(self) -> None:
        with self._lock:
            self.history = replace(self.history, succeeded_at=time.time())

    def _record_failure(self, failure: StoreBusy) -> None:
        with self._lock:
            failures = self.history.failures + 1
            self.history = replace(self.history, failed_at=time.time(), problem=str(failure), failures=failures)

    @contextmanager
    def _hold_connection(self) -> Iterator[Connection]:
        with self._connect() as connection:
            self._holder = current_thread()
            try:
                yield connection
            finally:
                # The count rises first; otherwise a waiting thread could consider the connection lost.
                self._given_back += 1
                self._holder = None

    def _connect(self) -> Connection:
        engine, given_back = self.engine, self._given_back
        try:
            return engine.connect()
        except PoolTimeout:
            if not self._replace_lost(engine, given_back):
                raise
        return self.engine.connect()

    def _open(self) -> Engine:
        engine = open_writer(self._path, self._busy_seconds)
        event.listen(engine, "connect", self._remember_driver)
        return engine

    def _remember_driver(self, driver: Any, _record: Any) -> None:
        self._driver = driver

    def _replace_lost(self, waited_for: Engine, given_back: int) -> bool:
        """Replace the engine if its connection is lost; return whether this or another thread replaced the engine.

        ``given_back`` is the count of returned connections when the calling thread began to wait.
        """
        with self._lock:
            if self.engine is not waited_for:
                return True
            if self._given_back != given_back or (self._holder is not None and self._holder.is_alive()):
                return False
            log.error("store.writer_replaced", waited_seconds=self._busy_seconds)
            with suppress(sqlite3.Error):
                # An open transaction on the lost connection would block the new connection.
                self._driver.close()
            waited_for.dispose()
            self.history = replace(self.history, replaced=self.history.replaced + 1)
            self.engine = self._open()
        return True


class CommitMark:
    """A connection that reads ``data_version``, a number that each commit of another connection changes.

    Commits of other processes change the number as well. Reading the number takes microseconds, a hundredth of the
    cheapest query of a table.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None

    def read_mark(self) -> str:
        """Return ``data_version`` as text."""
        with self._lock:
            if self._connection is None:
                self._connection = self._open()
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return str(version)

    def close(self) -> None:
        """Close the connection; the next call of ``read_mark`` opens a new connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        address = f"{self._path.absolute().as_uri()}?mode=rw"
        opened = sqlite3.connect(
            address, uri=True, timeout=MARK_BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
        opened.execute("PRAGMA query_only=ON")
        return opened
