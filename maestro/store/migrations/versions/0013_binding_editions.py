"""A stamp that every change of a channel's binding draws anew."""

from alembic import op

revision = "0013"
down_revision = "0012"

CHANGES = ("insert", "update", "delete")


def upgrade() -> None:
    """Apply."""
    draw = (
        "INSERT INTO editions (name, stamp) VALUES ('agent_channels', random()) "
        "ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp;"
    )
    for change in CHANGES:
        op.execute(
            f"CREATE TRIGGER agent_channels_edition_{change} AFTER {change.upper()} ON agent_channels BEGIN {draw} END"
        )


def downgrade() -> None:
    """Take back."""
    for change in CHANGES:
        op.execute(f"DROP TRIGGER agent_channels_edition_{change}")
