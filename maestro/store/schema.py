"""Brings the tables up to this release, and refuses a database it does not understand."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError

from maestro.domain.errors import NewerDatabase, OlderDatabase, StoreUnreadable
from maestro.store.engine import damage, open_readers, open_writer

MIGRATIONS = Path(__file__).parent / "migrations"

OLDEST_SQLITE = (3, 35)
"""The first one in which a change can return the rows that it changed."""


def upgrade(path: Path) -> None:
    """Create or migrate the database file.

    Raises ``NewerDatabase`` when a later release wrote it, ``StoreUnreadable`` when it is no readable SQLite file.
    """
    with opened(open_writer(path), path) as connection:
        if not _is_present(connection, path):
            command.upgrade(_config(connection), "head")


def check(path: Path) -> None:
    """Make sure that the database file is of this release, without changing it: another process may be using it.

    Raises ``OlderDatabase`` when an earlier release wrote it, and what ``upgrade`` raises.
    """
    with opened(open_readers(path), path) as connection:
        require_release(connection, path)


def require_release(connection: Connection, path: Path) -> None:
    """Make sure that the tables are those of this release; raises ``OlderDatabase`` and ``NewerDatabase``."""
    if not _is_present(connection, path):
        raise OlderDatabase(
            f"{path} was written by an older version of Maestro. End that version if it runs, and bring the database "
            "up to date with `maestro migrate`."
        )


def revision(path: Path) -> str:
    """Return which revision of the tables the file has, empty when there is no file or nothing in it.

    Raises ``StoreUnreadable`` when it is no readable SQLite file.
    """
    if not path.exists():
        return ""
    with opened(open_readers(path), path) as connection:
        return MigrationContext.configure(connection).get_current_revision() or ""


@contextmanager
def opened(engine: Engine, path: Path) -> Iterator[Connection]:
    """Connect, and say in our words why a file cannot be read; raises ``StoreUnreadable``."""
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
    """Say what the driver's error means for a person."""
    damaged = damage(path, cause)
    if damaged and getattr(cause, "sqlite_errorcode", 0) != sqlite3.SQLITE_NOTADB:
        return damaged
    if isinstance(cause, sqlite3.OperationalError):
        return f"the database {path} cannot be opened: {cause}. Check its permissions and the free space."
    return f"{path} is not a Maestro database: {cause}. Move it away or set dataDir to another folder."


def _is_present(connection: Connection, path: Path) -> bool:
    """Say whether the tables are those of this release; false when they are older. Raises ``NewerDatabase``."""
    scripts = ScriptDirectory.from_config(_config(connection))
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise NewerDatabase(
            f"{path} was written by a newer version of Maestro (schema {found}). "
            "Install that version, or restore a backup made before the upgrade."
        )
    return found == scripts.get_current_head()


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config
