"""Creation and migration of the tables, and refusal of a database that this release cannot migrate."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DatabaseError

from maestro.domain.errors import NewerDatabase, OlderDatabase, StoreUnreadable
from maestro.store.engine.database import describe_damage, open_readers, open_writer

MIGRATIONS = Path(__file__).parents[1] / "migrations"

OLDEST_SQLITE = (3, 35)
"""The first SQLite version that supports ``RETURNING``."""


def upgrade_database(path: Path) -> None:
    """Create the database file, or migrate its tables to this release.

    Raises ``StoreUnreadable`` for a file that is no readable SQLite database, and ``NewerDatabase`` for a file of a
    later release. Raises ``OlderDatabase`` for a file of a version before the first release.
    """
    with open_connection(open_writer(path), path) as connection:
        if not _has_current_tables(connection, path):
            run_migrations(connection)


def check_schema(path: Path) -> None:
    """Check that a database file has the tables of this release, without changing the file.

    Raises ``OlderDatabase`` when an earlier release wrote the file, and the errors of ``upgrade_database``.
    """
    with open_connection(open_readers(path), path) as connection:
        require_release(connection, path)


def require_release(connection: Connection, path: Path) -> None:
    """Raise ``OlderDatabase`` or ``NewerDatabase`` unless an open database has the tables of this release."""
    if not _has_current_tables(connection, path):
        raise OlderDatabase(
            f"{path} was written by an older version of Maestro. End that version if it runs, and bring the database "
            "up to date with `maestro migrate`."
        )


def read_revision(path: Path) -> str:
    """Return the revision of the tables in a database file; empty if the file is missing or has no tables.

    Raises ``StoreUnreadable`` when the file is no readable SQLite file.
    """
    if not path.exists():
        return ""
    with open_connection(open_readers(path), path) as connection:
        return _recorded_revision(connection) or ""


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
    """Return a message with the reason and the fix for an error of the SQLite driver."""
    damaged = describe_damage(path, cause)
    if damaged and getattr(cause, "sqlite_errorcode", 0) != sqlite3.SQLITE_NOTADB:
        return damaged
    if isinstance(cause, sqlite3.OperationalError):
        return f"the database {path} cannot be opened: {cause}. Check its permissions and the free space."
    return f"{path} is not a Maestro database: {cause}. Move it away or set dataDir to another folder."


def _has_current_tables(connection: Connection, path: Path) -> bool:
    """Return whether the tables are those of this release; false means that they can be migrated.

    Raises ``NewerDatabase``, and ``OlderDatabase`` for tables that cannot be migrated.
    """
    found, known = _recorded_revision(connection), list_revisions()
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


def run_migrations(connection: Connection) -> None:
    """Run all migrations that a database has not had yet."""
    # Alembic is imported only here, because its import takes 0.1 s of CPU time and most starts need no migration.
    command, config = import_module("alembic.command"), import_module("alembic.config").Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _recorded_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision_id: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision_id


@cache
def list_revisions() -> tuple[str, ...]:
    """Return the table revisions that this release knows, oldest first, from the file names of its migrations."""
    return tuple(sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py")))
