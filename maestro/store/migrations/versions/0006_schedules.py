"""Schedules that run, webhooks, and jobs without a conversation."""

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime

revision = "0006"
down_revision = "0005"

TABLES = ("heartbeat_configs", "cron_jobs")
KEPT = (
    "id, agent_id, name, schedule, zone, prompt, platform, account, channel, enabled, created_by, created_at, "
    "updated_at"
)
"""What a schedule had before it could run."""

PLANNED = "agent_id, schedule, zone, jitter_seconds, enabled, paused_reason, anchored_at, ended_at"
"""What Temporal has to be told of when it changes."""


def upgrade() -> None:
    """Apply."""
    for table in TABLES:
        _remake(table, running=True)
    _editions()
    _webhooks()
    for column in (
        sa.Column("schedule", sa.String(), nullable=True),
        sa.Column("slot", UtcDateTime(), nullable=True),
        sa.Column("webhook_id", sa.Integer(), nullable=True),
        sa.Column("said", sa.String(), nullable=False, server_default=""),
    ):
        op.add_column("queue", column)
    for column_name in ("schedule", "webhook_id"):
        here = sa.text(f"{column_name} IS NOT NULL")
        op.create_index(
            f"ix_queue_{column_name}", "queue", [column_name, "turn"], sqlite_where=here, postgresql_where=here
        )
    op.add_column("clients", sa.Column("weight", sa.Float(), nullable=False, server_default="1.0"))


def downgrade() -> None:
    """Take back; schedules are kept without what their runs left."""
    op.drop_column("clients", "weight")
    for name in ("schedule", "webhook_id"):
        op.drop_index(f"ix_queue_{name}", "queue")
    for name in ("said", "webhook_id", "slot", "schedule"):
        op.drop_column("queue", name)
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
    for table in TABLES:
        _remake(table, running=False)
    op.execute("DELETE FROM editions WHERE name = 'schedules'")


def _remake(table: str, *, running: bool) -> None:
    """Make the table anew: only so can SQLite be told never to give the number of a deleted schedule again."""
    op.drop_index(f"ix_{table}_agent_id", table)
    op.rename_table(table, f"{table}_before")
    op.create_table(
        table,
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("name", "schedule", "zone", "prompt")),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("platform", "account", "channel")),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        *(_running(table) if running else ()),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("agent_id", "name"),
        sqlite_autoincrement=running,
    )
    columns, values = (f"{KEPT}, anchored_at", f"{KEPT}, created_at") if running else (KEPT, KEPT)
    op.execute(f"INSERT INTO {table} ({columns}) SELECT {values} FROM {table}_before")  # noqa: S608 our own names
    op.drop_table(f"{table}_before")
    op.create_index(f"ix_{table}_agent_id", table, ["agent_id"])


def _running(table: str) -> tuple[sa.Column[str] | sa.Column[int], ...]:
    """Return the columns of what runs."""
    texts = ("thread", "paused_reason", "last_job_id", "followed", "follow_error")
    counts = ("jitter_seconds", "runs", "skipped", "failures")
    return (
        *(sa.Column(name, sa.String(), nullable=False, server_default="") for name in texts),
        *(sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in counts),
        sa.Column("anchored_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("last_slot", UtcDateTime(), nullable=True),
        *((sa.Column("script", sa.String(), nullable=False, server_default=""),) if table == TABLES[0] else ()),
    )


def _editions() -> None:
    """Keep a stamp that every change of what is planned draws anew; what a run leaves in its row is no such change."""
    draw = (
        "INSERT INTO editions (name, stamp) VALUES ('schedules', random()) "
        "ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp;"
    )
    for table in TABLES:
        for change in ("insert", f"update OF {PLANNED}", "delete"):
            trigger = f"{table}_edition_{change.partition(' ')[0]}"
            op.execute(f"CREATE TRIGGER {trigger} AFTER {change} ON {table} BEGIN {draw} END")


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("name", "prompt_template", "scheme", "secret")),
        sa.Column("last4", sa.String(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("platform", "account", "channel", "thread")),
        sa.Column("per_minute", sa.Integer(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("trigger_count", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("refused_count", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("last_triggered", UtcDateTime(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("path"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhooks_agent_id", "webhooks", ["agent_id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("webhook_id", sa.Integer(), nullable=False),
        sa.Column("delivery_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("received_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"]),
        sa.PrimaryKeyConstraint("webhook_id", "delivery_id"),
        sa.UniqueConstraint("webhook_id", "digest"),
    )
    op.create_index("ix_webhook_deliveries_received_at", "webhook_deliveries", ["received_at"])
