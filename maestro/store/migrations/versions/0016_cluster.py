"""Adds what several hosts need: owners of claims, fencing numbers, fingerprints of keys, and notifications.

Notifications are PostgreSQL's: a trigger sends one with the commit of each change that a loop of some process waits
for (``StoreState`` in ``maestro/store/cache.py``). A job that is claimed as it is stored wakes no process.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

NOTIFICATIONS = (
    """CREATE FUNCTION notify_processes() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NOTIFY maestro_changes;
        RETURN NULL;
    END $$""",
    """CREATE TRIGGER queue_added AFTER INSERT ON queue
    FOR EACH ROW WHEN (NEW.status = 'pending' AND NEW.claimed_at IS NULL) EXECUTE FUNCTION notify_processes()""",
    """CREATE TRIGGER queue_changed AFTER UPDATE OF status, claimed_at, stop_requested, wake_at ON queue
    FOR EACH ROW WHEN (
        (NEW.status = 'pending' AND NEW.claimed_at IS NULL AND (OLD.status <> 'pending' OR OLD.claimed_at IS NOT NULL))
        OR (NEW.status = 'waiting' AND NEW.wake_at IS DISTINCT FROM OLD.wake_at)
        OR (NEW.stop_requested AND NOT OLD.stop_requested)
        OR (NEW.status <> OLD.status AND NEW.status IN ('cancelled', 'failed'))
    ) EXECUTE FUNCTION notify_processes()""",
    """CREATE TRIGGER editions_changed AFTER INSERT OR UPDATE ON editions
    FOR EACH ROW WHEN (NEW.name IN ('agents', 'bot_instances', 'schedules')) EXECUTE FUNCTION notify_processes()""",
    """CREATE TRIGGER settings_changed AFTER INSERT ON settings_versions
    FOR EACH ROW EXECUTE FUNCTION notify_processes()""",
    """CREATE TRIGGER batches_changed AFTER INSERT OR UPDATE OF ended_at ON replay_batches
    FOR EACH ROW EXECUTE FUNCTION notify_processes()""",
)


def upgrade() -> None:
    """Add the tables, the column, and the triggers of PostgreSQL."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    text = sa.String() if is_sqlite else sa.Text(collation="C")
    op.create_table(
        "leases",
        sa.Column("name", text, primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("holder", text, nullable=False),
        sa.Column("taken_at", sa.String(32) if is_sqlite else text, nullable=False),
    )
    op.create_table(
        "key_fingerprints", sa.Column("name", text, primary_key=True), sa.Column("fingerprint", text, nullable=False)
    )
    op.add_column("queue", sa.Column("claimed_by", text, nullable=False, server_default=""))
    if not is_sqlite:
        for statement in NOTIFICATIONS:
            op.get_bind().exec_driver_sql(statement)
