"""The tables, indexes and triggers of the first release, by the statements in the file beside this one.

Earlier numbers were revisions of development versions, whose databases are refused.
"""

from pathlib import Path

from alembic import op

revision = "0014"
down_revision = None


def upgrade() -> None:
    """Apply."""
    statements = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in statements.removesuffix(";\n").split(";\n\n"):
        op.get_bind().exec_driver_sql(statement)
