"""What platforms say of our messages, where channels went, files and buttons of answers, and answers that grow."""

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime

revision = "0010"
down_revision = "0009"

TEXTS = {
    "deliveries": ("digest", "content_type", "buttons", "edits", "key", "standing"),
    "questions": ("choices",),
}
KNOWN = "platform_message_id <> ''"


def upgrade() -> None:
    """Apply; what an earlier release sent has no key that is looked for."""
    for table, names in TEXTS.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.String(), nullable=False, server_default=""))
    op.add_column("deliveries", sa.Column("repeats", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_deliveries_key", "deliveries", ["key"])
    op.create_index(
        "ix_deliveries_known",
        "deliveries",
        ["platform", "account", "channel", "platform_message_id"],
        sqlite_where=sa.text(KNOWN),
        postgresql_where=sa.text(KNOWN),
    )
    op.create_table(
        "moved_channels",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("platform", "account", "channel", "moved_to")),
        sa.Column("moved_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "account", "channel"),
    )
    op.create_table(
        "job_files",
        sa.Column("id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("job_id", "digest", "filename", "content_type")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("number", "place", "size")),
        sa.Column("caption", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["queue.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "digest", "filename"),
    )
    op.create_index("ix_job_files_digest", "job_files", ["digest"])
    op.add_column("connectors", sa.Column("edit_interval", sa.Float(), nullable=False, server_default="0"))
    op.create_table(
        "drafts",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("platform_message_id", sa.String(), nullable=False),
        sa.Column("tried_at", UtcDateTime(), nullable=True),
        sa.Column("begun_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["queue.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("drafts")
    op.drop_column("connectors", "edit_interval")
    op.drop_table("job_files")
    op.drop_table("moved_channels")
    op.drop_index("ix_deliveries_known", "deliveries")
    op.drop_index("ix_deliveries_key", "deliveries")
    op.drop_column("deliveries", "repeats")
    for table, names in TEXTS.items():
        for name in reversed(names):
            op.drop_column(table, name)
