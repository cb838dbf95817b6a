"""Bots with secrets and options, cursors and closed channels, what connectors saw, and chunks in doubt or as files."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime

revision = "0007"
down_revision = "0006"

CHANGES = ("insert", "update", "delete")


def upgrade() -> None:
    """Apply; the database stamps every change of a bot, as it does of an agent."""
    for table, columns in _columns().items():
        for column in columns:
            op.add_column(table, column)
    op.create_table(
        "channel_cursors",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("platform", "account", "channel", "thread")),
        sa.Column("mark", sa.String(), nullable=False),
        sa.Column("direct", sa.Boolean(), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "account", "channel", "thread"),
    )
    op.create_table(
        "disabled_channels",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("platform", "account", "channel", "reason")),
        sa.Column("disabled_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "account", "channel"),
    )
    draw = (
        "INSERT INTO editions (name, stamp) VALUES ('bot_instances', random()) "
        "ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp;"
    )
    for change in CHANGES:
        op.execute(
            f"CREATE TRIGGER bot_instances_edition_{change} AFTER {change.upper()} ON bot_instances BEGIN {draw} END"
        )


def downgrade() -> None:
    """Take back."""
    for change in CHANGES:
        op.execute(f"DROP TRIGGER bot_instances_edition_{change}")
    op.drop_table("disabled_channels")
    op.drop_table("channel_cursors")
    for table, columns in _columns().items():
        for column in reversed(columns):
            op.drop_column(table, column.name)


def _columns() -> dict[str, tuple[sa.Column[Any], ...]]:
    return {
        "bot_instances": (
            sa.Column("enabled", sa.Boolean(), nullable=False, server_default=sa.true()),
            sa.Column("secrets", sa.String(), nullable=False, server_default="{}"),
            sa.Column("endings", sa.String(), nullable=False, server_default="{}"),
            sa.Column("options", sa.String(), nullable=False, server_default="{}"),
            sa.Column("changed_at", UtcDateTime(), nullable=True),
        ),
        "connectors": (
            sa.Column("last_event_at", UtcDateTime(), nullable=True),
            sa.Column("lag_seconds", sa.Float(), nullable=True),
            sa.Column("last_error", sa.String(), nullable=False, server_default=""),
            sa.Column("last_error_at", UtcDateTime(), nullable=True),
        ),
        "deliveries": (
            sa.Column("filename", sa.String(), nullable=False, server_default=""),
            sa.Column("tried_at", UtcDateTime(), nullable=True),
        ),
        "inbox": (sa.Column("addressing", sa.String(), nullable=False, server_default=""),),
    }
