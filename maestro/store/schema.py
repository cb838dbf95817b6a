"""Brings the tables up to this release, and refuses a database it does not understand."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, OperationalError

from maestro.domain.errors import NewerDatabase, StoreUnreadable
from maestro.store.engine import open_writer

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(path: Path) -> None:
    """Create or migrate the database file.

    Raises ``NewerDatabase`` when a later release wrote it, ``StoreUnreadable`` when it is no readable SQLite file.
    """
    engine = open_writer(path)
    try:
        _upgrade(engine, path)
    except OperationalError as error:
        raise StoreUnreadable(
            f"the database {path} cannot be opened: {error.orig}. Check its permissions and the free space."
        ) from None
    except DatabaseError as error:
        raise StoreUnreadable(
            f"{path} is not a Maestro database: {error.orig}. Move it away or set dataDir to another folder."
        ) from None
    finally:
        engine.dispose()


def _upgrade(engine: Engine, path: Path) -> None:
    with engine.begin() as connection:
        config = _config(connection)
        scripts = ScriptDirectory.from_config(config)
        present = MigrationContext.configure(connection).get_current_revision()
        if present == scripts.get_current_head():
            return
        if present is not None and present not in {script.revision for script in scripts.walk_revisions()}:
            raise NewerDatabase(
                f"{path} was written by a newer version of Maestro (schema {present}). "
                "Install that version, or restore a backup made before the upgrade."
            )
        command.upgrade(config, "head")


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config
