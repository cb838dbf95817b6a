"""SQLite: one writer per process, several readers, and a reserve file for a full disk.

See docs/invariants.md: transactions.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread, current_thread
from typing import Any, cast

import structlog
from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maestro.domain.errors import StoreBusy, StoreDamaged, StoreFull, StoreUnreadable
from maestro.store.engine.database import BUSY_SECONDS, WriteHistory
from maestro.store.engine.reserve import Reserve
from maestro.store.engine.scopes import Scope

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

OLDEST_SQLITE = (3, 35)
"""The first SQLite version that supports ``RETURNING``."""

log = structlog.get_logger(__name__)

MARK_BUSY_SECONDS = 5.0

RETURNED_PAGES = 500
"""The most pages (4 kB each) that one transaction returns to the disk, so that others wait for milliseconds."""
KEPT_SHARE = 0.1
"""The share of the file that may be free: new rows fill it soon."""


def open_writer(path: Path, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return the engine for writing, with a pool of one connection.

    A thread waits for the connection in Python and is woken at once, instead of polling the lock of SQLite.
    """
    # ``secure_delete`` overwrites deleted content; its default differs between builds of SQLite.
    pragmas = ["journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"]
    if not path.exists():
        # It counts only before the first write; on each later connection it would be a commit. See ``return_space``.
        pragmas.insert(0, "auto_vacuum=INCREMENTAL")
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


@contextmanager
def administer(path: Path, *, write: bool = False, observe: bool = False) -> Iterator[Connection]:
    """Yield a connection in a transaction; raises ``StoreUnreadable`` with the reason and the fix if that fails.

    With ``observe`` no file is created or changed, not even a write-ahead log.
    """
    engine = open_writer(path) if write else open_observer(path) if observe else open_readers(path)
    with open_connection(engine, path) as connection:
        yield connection


@contextmanager
def open_connection(engine: Engine, path: Path) -> Iterator[Connection]:
    """Yield a connection of the engine; raises ``StoreUnreadable`` with the reason and the fix if that fails."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnreadable(
            f"Python's SQLite library is {sqlite3.sqlite_version}, and Maestro needs {needed} or later. Use a Python "
            "that brings a newer one, such as those of python.org, or update the SQLite of your system."
        )
    try:
        with engine.begin() as connection:
            yield connection
    except (DatabaseError, sqlite3.DatabaseError) as error:
        raise StoreUnreadable(_open_error(path, error.orig if isinstance(error, DatabaseError) else error)) from None
    finally:
        engine.dispose()


def _open_error(path: Path, cause: BaseException | None) -> str:
    """Return the reason and the fix for an error of the driver as a sentence."""
    damaged = describe_damage(path, cause)
    if damaged and getattr(cause, "sqlite_errorcode", 0) != sqlite3.SQLITE_NOTADB:
        return damaged
    if isinstance(cause, sqlite3.OperationalError):
        return f"the database {path} cannot be opened: {cause}. Check its permissions and the free space."
    return f"{path} is not a Maestro database: {cause}. Move it away or set dataDir to another folder."


def driver_connection(connection: Connection) -> sqlite3.Connection:
    """Return the SQLite driver's connection inside a SQLAlchemy connection."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def store_failure(error: Exception, path: Path) -> StoreBusy | None:
    """Convert a database error to an error of the store, without the SQL statement.

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
    """Describe the damage that a database error reports, and its repair; empty for other errors."""
    if str(cause).startswith(_NOT_UTF_8):
        # The driver's message is not used, because it quotes the invalid text.
        problem = "a text in it is not UTF-8"
    elif (getattr(cause, "sqlite_errorcode", 0) & PRIMARY_CODE) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        problem = str(cause)
    else:
        return ""
    return f"the database {path} is damaged: {problem}. {RESCUE}"


def create_database_engine(
    path: Path, begin: str, pragmas: Sequence[str], size: int, busy_seconds: float = BUSY_SECONDS
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
        # None stops the driver from beginning (deferred) transactions, because ``begin_transaction`` begins them.
        connection.isolation_level = None
        for pragma in (f"busy_timeout={round(busy_seconds * 1000)}", *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.execute(begin)  # A statement on the driver saves the cost of a SQLAlchemy result.

    return engine


class Writer:
    """The pool of a process's only writing connection, for which threads queue.

    A thread that is interrupted inside the pool can lose the connection, so that no thread holds it and none can get
    it. The connection is replaced when a thread has timed out waiting for it, no living thread holds it, and none
    returned it meanwhile. The last condition is needed because a thread that just got a returned connection may not be
    registered as its holder yet.
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
    def begin_transaction(self, _scope: Scope | None = None) -> Iterator[Connection]:
        """Yield the connection in a transaction that is committed at the end of the block; raises ``StoreBusy``.

        A scope has no effect, because there is one writer. Only a transaction that changed rows counts as a successful
        write.
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
        """Test writing by rewriting the database's header unchanged; raises ``StoreBusy`` if that fails."""
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
                # The count rises first, because a waiting thread could otherwise take the connection for lost.
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
        """Replace the engine if its connection is lost; return whether this or another thread replaced it.

        ``given_back`` is the count of returned connections when the thread began to wait.
        """
        with self._lock:
            if self.engine is not waited_for:
                return True
            if self._given_back != given_back or (self._holder is not None and self._holder.is_alive()):
                return False
            log.error("store.writer_replaced", waited_seconds=self._busy_seconds)
            with suppress(sqlite3.Error):
                # An open transaction on the lost connection would block the next writer.
                self._driver.close()
            waited_for.dispose()
            self.history = replace(self.history, replaced=self.history.replaced + 1)
            self.engine = self._open()
        return True


class CommitMark:
    """A connection that reads only ``data_version``, a number that changes with each commit of other connections.

    Commits of other processes change it too. Reading it takes microseconds, a hundredth of the cheapest query of a
    table.
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
        """Close the connection; a later call of ``mark`` opens another one."""
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


class SqliteDatabase:
    """The database file of one data folder."""

    has_scopes = False

    def __init__(self, path: Path, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path = path
        self._writer = Writer(path, busy_seconds)
        self._readers = open_readers(path)
        self._commits = CommitMark(path)
        self.reserve = Reserve(path)
        self.begin_transaction, self.test_write = self._writer.begin_transaction, self._writer.test_write

    @property
    def history(self) -> WriteHistory:
        """The outcomes of this process's writes."""
        return self._writer.history

    @contextmanager
    def view(self, *, settled: bool = False) -> Iterator[Connection]:  # noqa: ARG002 - ids of one writer are settled
        """Yield a connection in a read-only transaction; raises ``StoreBusy``."""
        with self._failures(), self._readers.begin() as connection:
            yield connection

    def read_mark(self) -> str:
        """Return a text that differs after every commit of any process."""
        with self._failures():
            return self._commits.read_mark()

    def return_space(self) -> bool:
        """Return up to ``RETURNED_PAGES`` free pages to the disk, and keep a share of the file for new rows.

        Return whether to go on. A file of release 0.1.0 keeps its size until it is converted; see
        docs/howto/read-and-delete-conversations.md.
        """
        with self.begin_transaction() as connection:
            driver = driver_connection(connection)
            pages, free = (driver.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
            surplus = min(free - round(pages * KEPT_SHARE), RETURNED_PAGES)
            for _ in range(surplus):  # the driver frees one page in a call, whatever the pragma asks for
                driver.execute("PRAGMA incremental_vacuum(1)")
            return bool(driver.execute("PRAGMA freelist_count").fetchone()[0] < free)

    def listen(self, heard: Callable[[], None]) -> float:
        """Return 0: SQLite tells no process of a commit, but each process can look for one within microseconds."""
        del heard
        return 0.0

    def close(self) -> None:
        self._writer.close()
        self._readers.dispose()
        self._commits.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise errors of the database driver as errors of the store, without the SQL statement."""
        try:
            yield
        except DATABASE_ERRORS as error:
            if failure := store_failure(error, self._path):
                raise failure from None
            raise


open_database = SqliteDatabase
