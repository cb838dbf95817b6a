"""Accounts, usage, budgets, tool calls, questions, and jobs that wait."""

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Apply."""
    _accounts()
    _spending()
    _tools()
    op.add_column("queue", sa.Column("client_id", sa.Integer(), nullable=True))
    op.add_column("queue", sa.Column("waits_for", sa.String(), nullable=True))
    op.add_column("queue", sa.Column("waits_since", UtcDateTime(), nullable=True))
    op.add_column("queue", sa.Column("wake_at", UtcDateTime(), nullable=True))
    op.add_column("queue", sa.Column("told_to_wait", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index(
        "ix_queue_waiting",
        "queue",
        ["wake_at"],
        sqlite_where=sa.text("status = 'waiting'"),
        postgresql_where=sa.text("status = 'waiting'"),
    )
    op.add_column("llm_calls", sa.Column("tool_calls", sa.String(), nullable=False, server_default=""))
    op.add_column("llm_calls", sa.Column("cached_tokens", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("llm_calls", sa.Column("cache_write_tokens", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("agents", sa.Column("fallbacks", sa.String(), nullable=False, server_default=""))
    op.add_column("agents", sa.Column("tools", sa.String(), nullable=True))
    op.add_column("agents", sa.Column("client_id", sa.Integer(), nullable=True))
    op.add_column("agents", sa.Column("daily_budget_usd", sa.Float(), nullable=True))
    op.add_column("media", sa.Column("transcript", sa.String(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_index("ix_queue_waiting", "queue")
    for table, columns in (
        ("media", ("transcript",)),
        ("agents", ("daily_budget_usd", "client_id", "tools", "fallbacks")),
        ("llm_calls", ("cache_write_tokens", "cached_tokens", "tool_calls")),
        ("queue", ("told_to_wait", "wake_at", "waits_since", "waits_for", "client_id")),
    ):
        for column in columns:
            op.drop_column(table, column)
    for table in ("questions", "tool_calls", "reservations", "spending", "usage_log", "clients"):
        op.drop_table(table)
    op.drop_table("account_limits")
    op.drop_table("accounts")


def _accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("models", sa.String(), nullable=False),
        sa.Column("base_url", sa.String(), nullable=False),
        sa.Column("home_dir", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("last4", sa.String(), nullable=False),
        sa.Column("requests_per_minute", sa.Integer(), nullable=False),
        sa.Column("tokens_per_minute", sa.Integer(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("spent_usd", sa.Float(), nullable=False),
        sa.Column("rate_limited_until", UtcDateTime(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=False),
        sa.Column("last_error_at", UtcDateTime(), nullable=True),
        sa.Column("last_used_at", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "account_limits",
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("strikes", sa.Integer(), nullable=False),
        sa.Column("limited_at", UtcDateTime(), nullable=False),
        sa.Column("limited_until", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.PrimaryKeyConstraint("account_id", "model"),
    )


def _spending() -> None:
    op.create_table(
        "usage_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=True),
        sa.Column("client_id", sa.Integer(), nullable=True),
        sa.Column("conversation_id", sa.Integer(), nullable=True),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_usage_log_at", "usage_log", ["at"])
    op.create_index("ix_usage_log_job_id", "usage_log", ["job_id", "number", "attempt"])
    op.create_table(
        "spending",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("spent_usd", sa.Float(), nullable=False),
        sa.Column("reserved_usd", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("day", "scope", "subject"),
    )
    op.create_table(
        "reservations",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("amount_usd", sa.Float(), nullable=False),
        sa.Column("scopes", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "purpose", "number"),
    )
    op.create_table(
        "clients",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("daily_budget_usd", sa.Float(), nullable=True),
        sa.Column("configured", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )


def _tools() -> None:
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("arguments", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("result", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["queue.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "number", "place"),
    )
    op.create_table(
        "questions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("context", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("lane", sa.String(), nullable=True),
        sa.Column("asked_of", sa.String(), nullable=False),
        sa.Column("approvers", sa.String(), nullable=False),
        sa.Column("answer", sa.String(), nullable=False),
        sa.Column("answered_by", sa.String(), nullable=False),
        sa.Column("inbox_id", sa.Integer(), nullable=True),
        sa.Column("asked_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("answered_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["queue.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["inbox_id"], ["inbox.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "number", "place"),
    )
    op.create_index(
        "ix_questions_open",
        "questions",
        ["lane"],
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )
