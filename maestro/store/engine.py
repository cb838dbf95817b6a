"""Opens the database: one writing connection per process, many reading ones (design section 7)."""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event

BUSY_TIMEOUT_MS = 30_000
READERS = 8
CACHED_STATEMENTS = 512
"""What a message asks of the store is more than the 128 statements that the driver would keep of itself."""
OBSERVER_SECONDS = 2.0


def open_writer(path: Path) -> Engine:
    """Return the engine for writing; its pool holds a single connection.

    Threads of this process then queue in Python, woken at once, instead of polling SQLite's lock.
    """
    # What is deleted is overwritten: whether it is without being asked, each build of SQLite decides for itself.
    pragmas = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
    return _engine(path, begin="BEGIN IMMEDIATE", pragmas=pragmas, size=1)


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


def _engine(path: Path, begin: str, pragmas: tuple[str, ...], size: int) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=QueuePool,
        hide_parameters=True,  # an error would otherwise quote what people wrote
        pool_size=size,
        pool_use_lifo=True,  # the connection that was used last has the pages and the statements at hand
        max_overflow=0,
        pool_timeout=BUSY_TIMEOUT_MS / 1000,
        connect_args={
            "check_same_thread": False,
            "timeout": BUSY_TIMEOUT_MS / 1000,
            "cached_statements": CACHED_STATEMENTS,
        },
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # The driver's own transaction handling would begin deferred; ours decides.
        connection.isolation_level = None
        for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.execute(begin)  # each transaction pays for it, and nobody reads what SQLAlchemy would make of it

    return engine
