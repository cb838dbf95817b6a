"""Opens the database: one writing connection per process, many reading ones (docs/invariants.md: transactions)."""

import sqlite3
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maestro.domain.errors import StoreBusy, StoreDamaged, StoreFull

BUSY_SECONDS = 30.0
"""How long a transaction waits for the lock of the database, and a thread for a connection."""
READERS = 8
CACHED_STATEMENTS = 512
"""What a message asks of the store is more than the 128 statements that the driver would keep of itself."""
OBSERVER_SECONDS = 2.0
DATABASE_ERRORS = (DatabaseError, sqlite3.DatabaseError, PoolTimeout)
"""What SQLAlchemy and the driver raise."""
PRIMARY_CODE = 0xFF
"""The part of SQLite's extended result codes that is the plain one."""

_NOT_UTF_8 = "Could not decode to UTF-8"
"""How Python's driver begins an error about a text; it has no code for it."""

RESCUE = (
    "End Maestro, keep a copy of the file together with its -wal file, and restore a backup, or save what "
    "`sqlite3 FILE .recover` can."
)


def open_writer(path: Path, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return the engine for writing; its pool holds a single connection.

    Threads of this process then queue in Python, woken at once, instead of polling SQLite's lock.
    """
    # What is deleted is overwritten: whether it is without being asked, each build of SQLite decides for itself.
    pragmas = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
    return _engine(path, begin="BEGIN IMMEDIATE", pragmas=pragmas, size=1, busy_seconds=busy_seconds)


def open_readers(path: Path) -> Engine:
    """Return the engine for reading; its connections cannot write and never block a writer.

    The journal is the writer's: who sets it while somebody else makes the database is refused at once, however long it
    would wait.
    """
    return _engine(path, begin="BEGIN", pragmas=("query_only=ON",), size=READERS)


def open_observer(path: Path) -> Engine:
    """Return the engine for a look that leaves no trace: it creates no file and changes none.

    After a clean end there is no write-ahead log, and SQLite would make one even to read; so the file is then read as
    one that nobody changes. With a log, somebody may be writing, and the log belongs to what is read.
    """
    settled = not path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?{'immutable=1' if settled else 'mode=ro'}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=OBSERVER_SECONDS, check_same_thread=False)

    return create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection behind one of SQLAlchemy."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def store_failure(error: Exception, path: Path) -> StoreBusy | None:
    """Return what a failure of the database means, without the statement that met it.

    None for an error about what was to be written, such as a constraint.
    """
    cause = error.orig if isinstance(error, DatabaseError) else error
    if damaged := damage(path, cause):
        return StoreDamaged(damaged)
    if not isinstance(cause, (sqlite3.OperationalError, PoolTimeout)):
        return None
    if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StoreFull(f"the store did not answer: {cause}. Free some space on its disk.")
    return StoreBusy(f"the store did not answer: {cause}. Check its disk and who else uses the database.")


def damage(path: Path, cause: BaseException | None) -> str:
    """Say what a person does about damage that the driver found; empty when its error is about something else."""
    if str(cause).startswith(_NOT_UTF_8):
        found = "a text in it is not UTF-8"  # the driver's own sentence quotes the text
    elif (getattr(cause, "sqlite_errorcode", 0) & PRIMARY_CODE) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        found = str(cause)
    else:
        return ""
    return f"the database {path} is damaged: {found}. {RESCUE}"


def _engine(path: Path, begin: str, pragmas: tuple[str, ...], size: int, busy_seconds: float = BUSY_SECONDS) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=QueuePool,
        hide_parameters=True,  # an error would otherwise quote what people wrote
        pool_size=size,
        pool_use_lifo=True,  # the connection that was used last has the pages and the statements at hand
        max_overflow=0,
        pool_timeout=busy_seconds,
        connect_args={
            "check_same_thread": False,
            "timeout": busy_seconds,
            "cached_statements": CACHED_STATEMENTS,
        },
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # The driver's own transaction handling would begin deferred; ours decides.
        connection.isolation_level = None
        for pragma in (f"busy_timeout={round(busy_seconds * 1000)}", *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.execute(begin)  # each transaction pays for it, and nobody reads what SQLAlchemy would make of it

    return engine
