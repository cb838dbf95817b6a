"""Adds what retention needs: a mark of jobs without texts of calls, and indexes of the messages of a job."""

from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add the column and the indexes; without these, each deleted job would read all messages."""
    false = "0" if op.get_bind().dialect.name == "sqlite" else "false"
    op.execute(f"ALTER TABLE queue ADD COLUMN calls_deleted BOOLEAN DEFAULT {false} NOT NULL")
    op.execute("CREATE INDEX ix_messages_job_id ON messages (job_id)")
    op.execute("CREATE INDEX ix_messages_archive_job_id ON messages_archive (job_id)")
