"""Stores that cannot be written: another program has the lock, or nobody has the connection."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from maestro.store.store import Store


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Keep everybody else from writing until the end of the block."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30, check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


def lose_connection(store: Store, *statements: str) -> object:
    """Take the connection out of the pool as an interrupted thread does: nobody will give it back."""
    lost = store._writer.engine.pool._do_get()
    assert lost.dbapi_connection is not None
    for statement in statements:
        lost.dbapi_connection.execute(statement)
    return lost
