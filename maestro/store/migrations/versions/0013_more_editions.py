"""Stamps that every change of bindings, compactions and states draws anew."""

from alembic import op

revision = "0013"
down_revision = "0012"

TABLES = ("agent_channels", "compactions", "memory_state")
CHANGES = ("insert", "update", "delete")


def upgrade() -> None:
    """Apply."""
    for table in TABLES:
        draw = (
            f"INSERT INTO editions (name, stamp) VALUES ('{table}', random()) "  # noqa: S608 our own names
            "ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp;"
        )
        for change in CHANGES:
            op.execute(f"CREATE TRIGGER {table}_edition_{change} AFTER {change.upper()} ON {table} BEGIN {draw} END")


def downgrade() -> None:
    """Take back."""
    for table in TABLES:
        for change in CHANGES:
            op.execute(f"DROP TRIGGER {table}_edition_{change}")
