"""Which attempt of Temporal's each attempt at a step is, so that an older one does not act beside a newer one."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Apply; of the attempts of an earlier release nothing is known."""
    op.add_column("job_steps", sa.Column("workflow_run", sa.String(), nullable=False, server_default=""))
    op.add_column("job_steps", sa.Column("activity_attempt", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Take back."""
    op.drop_column("job_steps", "activity_attempt")
    op.drop_column("job_steps", "workflow_run")
