"""Owners that a command adds."""

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "owners",
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("added_at", UtcDateTime(), nullable=False),
        sa.Column("added_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "user_id"),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("owners")
