"""The #maestro chat: posts, cursors, reminders and sessions; tokens of agents; settings that change at run time."""

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Apply."""
    _chat()
    _agent_tokens()
    _settings()
    _calls()
    _questions(of_jobs_only=False)
    op.create_index(
        "ix_questions_outside",
        "questions",
        ["agent_id"],
        sqlite_where=sa.text("job_id IS NULL"),
        postgresql_where=sa.text("job_id IS NULL"),
    )


def downgrade() -> None:
    """Take back; what agents outside asked is lost, because it belongs to no job."""
    op.drop_index("ix_questions_outside", "questions")
    op.execute("DELETE FROM questions WHERE job_id IS NULL")
    _questions(of_jobs_only=True)
    for column in ("chat_upto", "chat_after"):
        op.drop_column("llm_calls", column)
    for table in ("settings_versions", "agent_tokens", "chat_reminders", "chat_cursor", "chat", "sessions"):
        op.drop_table(table)


def _chat() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime()),
    )
    op.create_index("ix_sessions_open", "sessions", ["id"], sqlite_where=sa.text("ended_at IS NULL"))
    op.create_table(
        "chat",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("ts", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_chat_session", "chat", ["session_id", "id"])
    op.create_table(
        "chat_cursor",
        sa.Column("agent_id", sa.String(), primary_key=True),
        sa.Column("last_id", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("offered_id", sa.Integer(), nullable=False, server_default="0"),
    )
    op.create_table(
        "chat_reminders",
        sa.Column("agent_id", sa.String(), primary_key=True),
        sa.Column("job_id", sa.String(), primary_key=True),
    )


def _agent_tokens() -> None:
    op.create_table(
        "agent_tokens",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("agent_id", sa.Integer(), sa.ForeignKey("agents.id"), nullable=False, index=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False, unique=True),
        sa.Column("ending", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("last_used_at", UtcDateTime()),
        sa.Column("revoked_at", UtcDateTime()),
    )


def _settings() -> None:
    op.create_table(
        "settings_versions",
        sa.Column("version", sa.Integer(), primary_key=True),
        sa.Column("values_json", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("changed_at", UtcDateTime(), nullable=False),
    )


def _calls() -> None:
    for column in ("chat_after", "chat_upto"):
        op.add_column("llm_calls", sa.Column(column, sa.Integer(), nullable=False, server_default="0"))


def _questions(*, of_jobs_only: bool) -> None:
    """Make the table anew: SQLite cannot change a column, and a batch of Alembic orders the constraints by chance."""
    op.drop_index("ix_questions_open", "questions")
    op.rename_table("questions", "questions_before")
    op.create_table(
        "questions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=not of_jobs_only),
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
    op.execute("INSERT INTO questions SELECT * FROM questions_before")
    op.drop_table("questions_before")
    op.create_index(
        "ix_questions_open",
        "questions",
        ["lane"],
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )
