"""Creates and migrates the tables, and refuses a database whose tables this release cannot migrate."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DatabaseError

from maestro.domain.errors import NewerDatabase, OlderDatabase, StoreUnreadable
from maestro.store.engine.database import damage, open_readers, open_writer

MIGRATIONS = Path(__file__).parents[1] / "migrations"

OLDEST_SQLITE = (3, 35)
"""The first version with ``RETURNING``."""


def upgrade(path: Path) -> None:
    """Create or migrate the database file.

    Raises ``NewerDatabase`` when a later release wrote it, ``OlderDatabase`` when a version before the first release
    did, and ``StoreUnreadable`` when it is no readable SQLite file.
    """
    with opened(open_writer(path), path) as connection:
        if not _is_present(connection, path):
            _migrate(connection)


def check(path: Path) -> None:
    """Require tables of this release, without changing the file, because another process may be using it.

    Raises ``OlderDatabase`` when an earlier release wrote the file, and the errors of ``upgrade``.
    """
    with opened(open_readers(path), path) as connection:
        require_release(connection, path)


def require_release(connection: Connection, path: Path) -> None:
    """Require the tables of this release; raises ``OlderDatabase`` and ``NewerDatabase``."""
    if not _is_present(connection, path):
        raise OlderDatabase(
            f"{path} was written by an older version of Maestro. End that version if it runs, and bring the database "
            "up to date with `maestro migrate`."
        )


def revision(path: Path) -> str:
    """Return the revision of the tables in the file, empty when the file is missing or has no tables.

    Raises ``StoreUnreadable`` when the file is no readable SQLite file.
    """
    if not path.exists():
        return ""
    with opened(open_readers(path), path) as connection:
        return _current(connection) or ""


@contextmanager
def opened(engine: Engine, path: Path) -> Iterator[Connection]:
    """Yield a connection; raises ``StoreUnreadable`` with the reason and the fix when the file cannot be read."""
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
        raise StoreUnreadable(_why(path, error.orig if isinstance(error, DatabaseError) else error)) from None
    finally:
        engine.dispose()


def _why(path: Path, cause: BaseException | None) -> str:
    """Return the reason and the fix for a driver error."""
    damaged = damage(path, cause)
    if damaged and getattr(cause, "sqlite_errorcode", 0) != sqlite3.SQLITE_NOTADB:
        return damaged
    if isinstance(cause, sqlite3.OperationalError):
        return f"the database {path} cannot be opened: {cause}. Check its permissions and the free space."
    return f"{path} is not a Maestro database: {cause}. Move it away or set dataDir to another folder."


def _is_present(connection: Connection, path: Path) -> bool:
    """Return whether the tables are those of this release; false when they can be migrated.

    Raises ``NewerDatabase``, and ``OlderDatabase`` when no migration begins at them.
    """
    found, known = _current(connection), revisions()
    if found is not None and found < known[0]:
        raise OlderDatabase(
            f"{path} was written by a development version of Maestro before its first release (schema {found}), and "
            f"cannot be upgraded. To start afresh, stop Maestro, move {path.name} and its -wal and -shm files to "
            "another folder, and start Maestro again."
        )
    if found is not None and found not in known:
        raise NewerDatabase(
            f"{path} was written by a newer version of Maestro (schema {found}). "
            "Install that version, or restore a backup made before the upgrade."
        )
    return found == known[-1]


def _migrate(connection: Connection) -> None:
    """Run the missing migrations."""
    # Alembic is imported only here, because its import takes 0.1 s of CPU time and most starts need no migration.
    command, config = import_module("alembic.command"), import_module("alembic.config").Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _current(connection: Connection) -> str | None:
    """Return the revision that Alembic recorded in the database, None without any."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision_id: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision_id


@cache
def revisions() -> tuple[str, ...]:
    """Return the revisions of this release, oldest first: the numbers in the file names of the migrations."""
    return tuple(sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py")))
