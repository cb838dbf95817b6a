"""What a prompt has to know of messages and facts, in indexes: of a long conversation hundreds would be read otherwise."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Apply; of the messages there are, nobody says yet whether they are shown as they are stored: they are read."""
    op.add_column("messages", sa.Column("plain_chars", sa.Integer(), nullable=True))
    outline = ("superseded", "role", "token_estimate", "inbox_id", "plain_chars")
    _index("messages", "conversation", ["conversation_id", "id", *outline])
    last_used = sa.text("coalesce(last_accessed, created_at)")
    _index("memory_facts", "surest", ["agent_id", "place", "confidence", last_used])


def downgrade() -> None:
    """Take back."""
    _index("memory_facts", "surest", ["agent_id", "place", "confidence"])
    _index("messages", "conversation", ["conversation_id", "id"])
    op.drop_column("messages", "plain_chars")


def _index(table: str, name: str, columns: list[str | sa.TextClause]) -> None:
    """Make an index anew."""
    op.drop_index(f"ix_{table}_{name}", table)
    op.create_index(f"ix_{table}_{name}", table, columns)
