"""Adds what transactions side by side need: one running job per lane, and sequences that never repeat a number.

The ids of conversations were the highest one plus 1 before, which did not move their sequence.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add the unique index, and on PostgreSQL the sequence of positions."""
    running = sa.text("status = 'running'")
    op.create_index(
        "ux_queue_running_lane", "queue", ["lane"], unique=True, sqlite_where=running, postgresql_where=running
    )
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        return
    connection.exec_driver_sql("CREATE SEQUENCE queue_turn_seq OWNED BY queue.turn")
    connection.exec_driver_sql("SELECT setval('queue_turn_seq', coalesce(max(turn), 0) + 1, false) FROM queue")
    connection.exec_driver_sql(
        "SELECT setval(pg_get_serial_sequence('conversations', 'id'), coalesce(max(id), 0) + 1, false) FROM "
        "(SELECT id FROM conversations UNION ALL SELECT id FROM removed_conversations) AS known"
    )
