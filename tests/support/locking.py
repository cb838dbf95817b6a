"""A lock on the database of a store, held by a connection that is not the product's."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Keep everybody else from writing until the end of the block."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30, check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")
