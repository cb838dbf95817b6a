"""Runs the migrations that a database lacks."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def migrate(connection: Connection, migrations: Path) -> None:
    """Bring the tables up to this release, by the scripts in a folder."""
    config = Config()
    config.set_main_option("script_location", str(migrations))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
