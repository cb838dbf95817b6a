"""Where an audited action came from, ended logins, restarts with edits and trials, and replays of many jobs at once."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime

revision = "0009"
down_revision = "0008"

PARTIAL = (
    ("ix_replay_batches_open", "replay_batches", ["id"], "ended_at IS NULL"),
    ("ix_replay_items_began", "replay_items", ["began"], "state = 'begun'"),
)

AUDITED = ("actor", "action", "subject")
"""By what operators look for entries of the audit log, the newest first."""

LISTED = ("created_at", "id", "status", "kind", "agent_id", "platform", "error", "what_if")
"""What lists of jobs are sorted and filtered by: found in the index alone, and only the jobs that are shown are read."""

SPARSE = {
    "ix_queue_told": ("queue", ("error", "reason", "task", "id"), "error != '' OR reason != '' OR task != ''"),
    "ix_job_steps_failed": ("job_steps", ("job_id", "id", "step"), "state = 'failed'"),
}
"""What searches and groups of failures read: an ordinary message and its steps are in none of it."""

USAGE_KEYS = {
    "day": "substr({row}.at, 1, 10)",
    "agent_id": "coalesce({row}.agent_id, 0)",
    "client_id": "coalesce({row}.client_id, 0)",
    "platform": "coalesce((SELECT platform FROM queue WHERE queue.id = {row}.job_id), '')",
    "provider": "{row}.provider",
    "model": "{row}.model",
    "account": "{row}.account",
    "purpose": "{row}.purpose",
}
_ENDED = "{row}.state <> 'interrupted'"
_CUT_OFF = "{row}.state = 'interrupted'"
_TOOK = "({row}.state = 'answered' OR {row}.input_tokens + {row}.output_tokens > 0)"
USAGE_SUMS = {
    "calls": "1",
    "failures": "{row}.state = 'failed'",
    "interrupted": _CUT_OFF,
    **{name: f"iif({_ENDED}, {{row}}.{name}, 0)" for name in ("input_tokens", "output_tokens", "cached_tokens")},
    "cost_usd": f"iif({_ENDED}, coalesce({{row}}.cost_usd, 0.0), 0.0)",
    "known": f"{_ENDED} AND {{row}}.cost_usd IS NOT NULL",
    "unknown_cost": f"{{row}}.cost_usd IS NULL AND {_TOOK}",
    "interrupted_cost_usd": f"iif({_CUT_OFF}, coalesce({{row}}.cost_usd, 0.0), 0.0)",
    "estimated": f"{_CUT_OFF} AND {{row}}.cost_usd IS NOT NULL",
}
"""What a row of ``usage_log`` adds to its day: written by the database itself, whoever writes the row."""


def upgrade() -> None:
    """Apply."""
    for table, columns in _columns().items():
        for column in columns:
            op.add_column(table, column)
    op.create_table(
        "replay_batches",
        sa.Column("id", sa.String(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("action", "edits", "wanted", "actor", "origin")),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("stopped", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "replay_items",
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("job_id", "lane", "state", "began", "problem")),
        sa.Column("at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["replay_batches.id"]),
        sa.PrimaryKeyConstraint("batch_id", "place"),
    )
    op.create_table(
        "ended_logins",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_replay_items_state", "replay_items", ["batch_id", "state", "place", "lane"])
    for name, of_table, key, rows in PARTIAL:
        op.create_index(name, of_table, key, sqlite_where=sa.text(rows), postgresql_where=sa.text(rows))
    for name in AUDITED:
        op.create_index(f"ix_audit_log_{name}", "audit_log", [name, "at"])
    op.create_index("ix_queue_listed", "queue", list(LISTED))
    op.drop_index("ix_queue_inbox_id", "queue")
    op.create_index("ix_queue_inbox_id", "queue", ["inbox_id", "id"])
    for name, (table, indexed, where) in SPARSE.items():
        op.create_index(name, table, list(indexed), sqlite_where=sa.text(where), postgresql_where=sa.text(where))
    op.create_index("ix_usage_log_conversation", "usage_log", ["conversation_id", "state", "cost_usd"])
    _usage_days()


def downgrade() -> None:
    """Take back."""
    for change in ("added", "changed", "removed"):
        op.execute(f"DROP TRIGGER usage_log_{change}")
    op.drop_table("usage_days")
    op.drop_index("ix_usage_log_conversation", "usage_log")
    for name, (table, _, _) in SPARSE.items():
        op.drop_index(name, table)
    op.drop_index("ix_queue_inbox_id", "queue")
    op.create_index("ix_queue_inbox_id", "queue", ["inbox_id"])
    op.drop_index("ix_queue_listed", "queue")
    for name in AUDITED:
        op.drop_index(f"ix_audit_log_{name}", "audit_log")
    op.drop_table("ended_logins")
    op.drop_table("replay_items")
    op.drop_table("replay_batches")
    for table, columns in _columns().items():
        for column in reversed(columns):
            op.drop_column(table, column.name)


def _usage_days() -> None:
    """Add up usage by day: a bill of a year then reads a few thousand rows instead of every call."""
    numbers = ("agent_id", "client_id")
    dollars = ("cost_usd", "interrupted_cost_usd")
    op.create_table(
        "usage_days",
        *(sa.Column(name, sa.Integer() if name in numbers else sa.String(), nullable=False) for name in USAGE_KEYS),
        *(sa.Column(name, sa.Float() if name in dollars else sa.Integer(), nullable=False) for name in USAGE_SUMS),
        sa.PrimaryKeyConstraint(*USAGE_KEYS),
    )
    op.execute(f"{_add('usage_log', 1)} FROM usage_log WHERE true {_MERGED}")
    put, take = f"{_add('new', 1)} WHERE true {_MERGED};", f"{_add('old', -1)} WHERE true {_MERGED}; {_EMPTY};"
    # The row of a call is written once; only what begins before its end is known, a transcription, changes.
    for change, event, actions in (
        ("added", "INSERT", put),
        ("changed", "UPDATE", f"{take} {put}"),
        ("removed", "DELETE", take),
    ):
        op.execute(f"CREATE TRIGGER usage_log_{change} AFTER {event} ON usage_log BEGIN {actions} END")


def _add(row: str, sign: int) -> str:
    names = ", ".join((*USAGE_KEYS, *USAGE_SUMS))
    keys = [expression.format(row=row) for expression in USAGE_KEYS.values()]
    sums = [f"{sign} * ({expression.format(row=row)})" for expression in USAGE_SUMS.values()]
    return f"INSERT INTO usage_days ({names}) SELECT {', '.join((*keys, *sums))}"


_MERGED = (
    f"ON CONFLICT ({', '.join(USAGE_KEYS)}) DO UPDATE SET "
    f"{', '.join(f'{name} = {name} + excluded.{name}' for name in USAGE_SUMS)}"
)
_EMPTY = "DELETE FROM usage_days WHERE day = substr(old.at, 1, 10) AND calls = 0"


def _columns() -> dict[str, tuple[sa.Column[Any], ...]]:
    return {
        "audit_log": (sa.Column("origin", sa.String(), nullable=False, server_default=""),),
        "queue": (
            sa.Column("edits", sa.String(), nullable=False, server_default=""),
            sa.Column("what_if", sa.Boolean(), nullable=False, server_default=sa.false()),
        ),
    }
