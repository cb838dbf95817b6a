"""Creates the tables, indexes and triggers of the first release from the SQL file beside this module.

Lower revision numbers belong to development versions, whose databases Maestro refuses.
"""

from pathlib import Path

from alembic import op

revision = "0014"
down_revision = None


def upgrade() -> None:
    """Create the tables in an empty database."""
    connection = op.get_bind()
    suffix = ".sql" if connection.dialect.name == "sqlite" else ".postgresql.sql"
    statements = Path(__file__).with_suffix(suffix).read_text(encoding="utf-8")
    for statement in statements.removesuffix(";\n").split(";\n\n"):
        connection.exec_driver_sql(statement)
