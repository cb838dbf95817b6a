"""Pictures that tools return."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "tool_pictures",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("number", "place", "seq")),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("digest", "content_type")),
        sa.ForeignKeyConstraint(["job_id"], ["queue.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "number", "place", "seq"),
    )
    op.create_index("ix_tool_pictures_digest", "tool_pictures", ["digest"])


def downgrade() -> None:
    """Take back."""
    op.drop_table("tool_pictures")
