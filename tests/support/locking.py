"""Stores that cannot be written: another program has the lock, or nobody has the connection."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from maestro.store.engine.postgresql import STORE_LOCK
from maestro.store.store import Store
from tests.support import postgresql
from tests.support.fresh_store import sqlite_of


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Keep everybody else from writing until the end of the block."""
    if postgresql.wanted():
        with psycopg.connect(postgresql.database_url(database)) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (STORE_LOCK,))
            yield
        return
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30, check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


def is_writable(database: Path) -> bool:
    """Tell whether no process is in the middle of a transaction that writes."""
    if postgresql.wanted():
        with psycopg.connect(postgresql.database_url(database)) as connection:
            found = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (STORE_LOCK,)).fetchone()
            return found == (True,)
    with closing(sqlite3.connect(database, timeout=0.2)) as holder:
        try:
            holder.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
    return True


def cut_connections(database: Path) -> None:
    """Let the server of PostgreSQL end all connections to a store, as it does when it is restarted."""
    with psycopg.connect(postgresql.database_url(database)) as connection:
        ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        connection.execute(f"{ending} WHERE datname = current_database() AND pid <> pg_backend_pid()")


def lose_connection(store: Store, *statements: str) -> object:
    """Take the connection out of the pool as an interrupted thread does: nobody will give it back."""
    lost = sqlite_of(store)._writer.engine.pool._do_get()
    assert lost.dbapi_connection is not None
    for statement in statements:
        lost.dbapi_connection.execute(statement)
    return lost
