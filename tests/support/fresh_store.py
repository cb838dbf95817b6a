"""A new store in no time: its tables are made once in each process of the tests, and copied from then on."""

import os
import sqlite3
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from maestro.store import store as store_module
from maestro.store.engine import schema
from maestro.store.engine.database import Location
from maestro.store.engine.sqlite import SqliteDatabase
from maestro.store.store import Clock, Store, utc_now
from maestro.store.transaction import Transaction
from tests.support import postgresql


def fresh_store(path: Path, clock: Clock = utc_now) -> Store:
    """Return an empty store at this path, as the product would have made it there."""
    if not postgresql.wanted():
        path.write_bytes(empty_database())
    return Store(path, clock)


def copy_new_databases() -> None:
    """Copy the tables of a new database, in this process and those forked from it, instead of running all migrations.

    Running them takes a third of a second of CPU time, more than the rest of a start. Tests of the migrations call
    ``maestro.store.engine.schema.upgrade_database``, which this leaves as it is.
    """
    if postgresql.wanted():
        postgresql.use_postgresql()
        return
    store_module.upgrade = _copy_or_upgrade  # type: ignore[attr-defined]


def _copy_or_upgrade(location: Location) -> None:
    if isinstance(location, Path) and not location.exists() and location.parent.is_dir():
        with suppress(OSError):  # a folder that cannot be written: the product says so itself
            fresh = location.with_name(f".{location.name}.{os.getpid()}")
            fresh.write_bytes(empty_database())
            fresh.replace(location)
            return
    schema.upgrade_database(location)


@cache
def empty_database() -> bytes:
    """Return the file of an empty store of this release."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "maestro.db")
        schema.upgrade_database(path)
        Store(path).close()
        return path.read_bytes()


def path_of(store: Store) -> Path:
    """Return the path that a store was opened by; on PostgreSQL it stands for a database."""
    assert isinstance(store.location, Path), "the store was opened by a URL"
    return store.location


def sqlite_of(store: Store) -> SqliteDatabase:
    """Return the database of a store that is a SQLite file."""
    assert isinstance(store._database, SqliteDatabase), "the store is no SQLite file"
    return store._database


def sqlite_connection(tx: Transaction) -> sqlite3.Connection:
    """Return the connection of a transaction on a SQLite file."""
    assert isinstance(tx._link.driver, sqlite3.Connection), "the store is no SQLite file"
    return tx._link.driver
