"""A new store in no time: its tables are made once in each process of the tests, and copied from then on."""

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from maestro.store import store as store_module
from maestro.store.engine import schema
from maestro.store.store import Clock, Store, utc_now


def fresh_store(path: Path, clock: Clock = utc_now) -> Store:
    """Return an empty store at this path, as the product would have made it there."""
    path.write_bytes(empty_database())
    return Store(path, clock)


def copy_new_databases() -> None:
    """Copy the tables of a new database, in this process and those forked from it, instead of running all migrations.

    Running them takes a third of a second of CPU time, more than the rest of a start. Tests of the migrations call
    ``maestro.store.engine.schema.upgrade_database``, which this leaves as it is.
    """
    store_module.upgrade = _copy_or_upgrade  # type: ignore[attr-defined]


def _copy_or_upgrade(path: Path) -> None:
    if path.exists() or not path.parent.is_dir():
        schema.upgrade_database(path)
        return
    with suppress(OSError):  # a folder that cannot be written: the product says so itself
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_bytes(empty_database())
        fresh.replace(path)
        return
    schema.upgrade_database(path)


@cache
def empty_database() -> bytes:
    """Return the file of an empty store of this release."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "maestro.db")
        schema.upgrade_database(path)
        Store(path).close()
        return path.read_bytes()
