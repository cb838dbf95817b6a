"""Where an audited action came from, restarts with edits and trials, and replays of many jobs at once."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime

revision = "0009"
down_revision = "0008"

PARTIAL = (
    ("ix_replay_batches_open", "replay_batches", ["id"], "ended_at IS NULL"),
    ("ix_replay_items_began", "replay_items", ["began"], "state = 'begun'"),
)

AUDITED = ("actor", "action", "subject")
"""By what operators look for entries of the audit log, the newest first."""


def upgrade() -> None:
    """Apply."""
    for table, columns in _columns().items():
        for column in columns:
            op.add_column(table, column)
    op.create_table(
        "replay_batches",
        sa.Column("id", sa.String(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("action", "edits", "wanted", "actor", "origin")),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("stopped", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "replay_items",
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("job_id", "lane", "state", "began", "problem")),
        sa.Column("at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["replay_batches.id"]),
        sa.PrimaryKeyConstraint("batch_id", "place"),
    )
    op.create_index("ix_replay_items_state", "replay_items", ["batch_id", "state", "place", "lane"])
    for name, table, columns, rows in PARTIAL:
        op.create_index(name, table, columns, sqlite_where=sa.text(rows), postgresql_where=sa.text(rows))
    for name in AUDITED:
        op.create_index(f"ix_audit_log_{name}", "audit_log", [name, "at"])


def downgrade() -> None:
    """Take back."""
    for name in AUDITED:
        op.drop_index(f"ix_audit_log_{name}", "audit_log")
    op.drop_table("replay_items")
    op.drop_table("replay_batches")
    for table, columns in _columns().items():
        for column in reversed(columns):
            op.drop_column(table, column.name)


def _columns() -> dict[str, tuple[sa.Column[Any], ...]]:
    return {
        "audit_log": (sa.Column("origin", sa.String(), nullable=False, server_default=""),),
        "queue": (
            sa.Column("edits", sa.String(), nullable=False, server_default=""),
            sa.Column("what_if", sa.Boolean(), nullable=False, server_default=sa.false()),
        ),
    }
