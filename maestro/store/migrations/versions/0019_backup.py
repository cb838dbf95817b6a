"""Adds the time of the backup from which an open job was restored."""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the column, which is empty for all jobs."""
    text = "VARCHAR(32)" if op.get_bind().dialect.name == "sqlite" else 'TEXT COLLATE "C"'
    op.execute(f"ALTER TABLE queue ADD COLUMN backed_up_at {text}")
