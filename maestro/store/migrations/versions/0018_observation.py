"""Records which process created a job and made an attempt, and the progress of background work."""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add columns with defaults, an index of ended jobs, and the table ``maintenance``."""
    text = "VARCHAR" if op.get_bind().dialect.name == "sqlite" else 'TEXT COLLATE "C"'
    for table in ("queue", "job_steps"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN process {text} DEFAULT '' NOT NULL")
    op.execute("CREATE INDEX ix_queue_completed ON queue (completed_at, id) WHERE completed_at IS NOT NULL")
    op.execute(
        f"CREATE TABLE maintenance (name {text} NOT NULL, holder {text} NOT NULL, held_until {text} NOT NULL, "
        f"position {text} NOT NULL, finished_at {text}, result {text} NOT NULL, PRIMARY KEY (name))"
    )
