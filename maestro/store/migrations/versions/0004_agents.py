"""Agents with versions, people who are known, skills, state, schedules, actions, merged jobs and delegations."""

import sqlalchemy as sa
from alembic import op

from maestro.domain.columns import UtcDateTime
from maestro.domain.memory.likeness import key
from maestro.domain.memory.wording import indexed

revision = "0004"
down_revision = "0003"

TOKENIZER = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc' tokenchars '+#_'"
_ADD = "INSERT INTO memory_index (rowid, agent_id, words) VALUES (new.id, new.agent_id, new.words);"
_TAKE = (
    "INSERT INTO memory_index (memory_index, rowid, agent_id, words) "
    "VALUES ('delete', old.id, old.agent_id, old.words);"
)
FACT_TRIGGERS = {
    "added": ("INSERT", _ADD),
    "changed": ("UPDATE OF agent_id, words", f"{_TAKE} {_ADD}"),
    "removed": ("DELETE", _TAKE),
}
"""What keeps the index of facts up to date."""

EDITIONS = {"agents": "", "skills": "", "accounts": " OF provider, model, priority, status"}
"""Tables of which the database tells any change of a row; of accounts, only of what says which is asked first."""


def upgrade() -> None:
    """Apply."""
    _agents()
    _people()
    _routing()
    _memory()
    _skills()
    _schedules()
    _jobs()
    _conversations()
    _editions()


def downgrade() -> None:
    """Take back."""
    for table in EDITIONS:
        for change in ("insert", "update", "delete"):
            op.execute(f"DROP TRIGGER {table}_edition_{change}")
    op.drop_index("ix_media_digest", "media")
    op.drop_index("ix_conversations_last", "conversations")
    for event in FACT_TRIGGERS:
        op.execute(f"DROP TRIGGER memory_facts_{event}")
    op.execute("DROP TABLE memory_index")
    op.drop_index("ix_memory_facts_surest", "memory_facts")
    op.drop_index("ix_inbox_person", "inbox")
    op.drop_index("ix_agents_routing", "agents")
    op.drop_index("ix_queue_parent_id", "queue")
    op.drop_index("ix_queue_merged_into", "queue")
    for table, columns in (
        ("prompts", ("layers",)),
        ("messages_archive", ("has_files", "agent_id")),
        ("messages", ("has_files", "agent_id")),
        ("queue", ("erased", "hears", "task", "depth", "parent_id", "merged_into")),
        ("inbox", ("pace",)),
        ("memory_facts", ("words", "likeness", "place")),
        ("clients", ("plan", "slug")),
        ("agent_channels", ("allow_bots", "busy")),
        ("agents", ("version", "entry", "memory_scope", "allow_users", "skills", "quirks", "voice")),
    ):
        for column in columns:
            op.drop_column(table, column)
    for table in (
        "editions",
        "discarded_files",
        "removed_conversations",
        "actions",
        "cron_jobs",
        "heartbeat_configs",
        "skill_problems",
        "skills",
        "memory_state",
        "ignored_lines",
        "invitations",
        "pairings",
        "known_people",
        "bot_instances",
        "agent_versions",
    ):
        op.drop_table(table)


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=False, server_default=default)


def _agents() -> None:
    for column in (
        _text("voice"),
        _text("quirks", "[]"),
        sa.Column("skills", sa.String(), nullable=True),
        sa.Column("allow_users", sa.String(), nullable=True),
        sa.Column("memory_scope", sa.String(), nullable=True),
        _text("entry"),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
    ):
        op.add_column("agents", column)
    op.create_table(
        "agent_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("snapshot", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("agent_id", "version"),
    )
    op.create_table(
        "bot_instances",
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=True),
        sa.Column("configured", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("platform", "account"),
    )
    op.add_column("agent_channels", sa.Column("busy", sa.String(), nullable=True))
    op.add_column("agent_channels", sa.Column("allow_bots", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("clients", _text("slug"))
    op.add_column("clients", _text("plan", "per_task"))


def _people() -> None:
    op.create_table(
        "known_people",
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("added_at", UtcDateTime(), nullable=False),
        sa.Column("added_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "user_id"),
    )
    op.create_table(
        "pairings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("told_at", UtcDateTime(), nullable=False),
        sa.Column("settled_at", UtcDateTime(), nullable=True),
        sa.Column("settled_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("code"),
    )
    op.create_index(
        "ux_pairings_pending",
        "pairings",
        ["platform", "user_id"],
        unique=True,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "invitations",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("as_owner", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "ignored_lines",
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("first_at", UtcDateTime(), nullable=False),
        sa.Column("last_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "account", "channel", "reason"),
    )


def _routing() -> None:
    op.add_column("inbox", _text("pace"))
    op.create_index("ix_inbox_person", "inbox", ["platform", "user_id", "pace", "received_at"])
    op.create_index("ix_agents_routing", "agents", ["status", "id", "slug", "name", "role"])
    op.create_index("ix_pairings_person", "pairings", ["platform", "user_id"])


def _memory() -> None:
    for column in ("place", "likeness", "words"):
        op.add_column("memory_facts", _text(column))
    op.create_index("ix_memory_facts_surest", "memory_facts", ["agent_id", "place", "confidence"])
    _memory_index()
    op.create_table(
        "memory_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("agent_id", "place", "key"),
    )


def _memory_index() -> None:
    """Index what facts say; ``maestro/domain/memory/wording.py`` writes the words, the tokenizer only takes them apart."""
    facts = sa.table("memory_facts", *map(sa.column, ("id", "content", "likeness", "words")))
    connection = op.get_bind()
    for fact_id, content in connection.execute(sa.select(facts.c.id, facts.c.content)).all():
        found = {"likeness": key(content), "words": indexed(content)}
        connection.execute(sa.update(facts).where(facts.c.id == fact_id).values(found))
    op.execute(
        "CREATE VIRTUAL TABLE memory_index USING fts5("
        f"agent_id, words, content='memory_facts', content_rowid='id', tokenize=\"{TOKENIZER}\")"
    )
    op.execute("INSERT INTO memory_index (memory_index) VALUES ('rebuild')")
    for event, actions in FACT_TRIGGERS.items():
        op.execute(f"CREATE TRIGGER memory_facts_{event} AFTER {actions[0]} ON memory_facts BEGIN {actions[1]} END")


def _skills() -> None:
    op.create_table(
        "skills",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("slug", "digest")),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("shipped", sa.Boolean(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("source", "name", "description", "category")),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("version", "author", "keywords", "patterns")),
        sa.Column("required_tools", sa.String(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("slug"),
    )
    op.create_table(
        "skill_problems",
        sa.Column("id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("source", "problem")),
        sa.PrimaryKeyConstraint("id"),
    )


def _schedules() -> None:
    for table in ("heartbeat_configs", "cron_jobs"):
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
            sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
            sa.PrimaryKeyConstraint("id"),
            sa.UniqueConstraint("agent_id", "name"),
        )
        op.create_index(f"ix_{table}_agent_id", table, ["agent_id"])


def _jobs() -> None:
    for column in (
        sa.Column("merged_into", sa.String(), nullable=True),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False, server_default="0"),
        _text("task"),
        sa.Column("hears", sa.Boolean(), nullable=False, server_default=sa.false()),
    ):
        op.add_column("queue", column)
    op.create_index("ix_queue_merged_into", "queue", ["merged_into"])
    op.create_index("ix_queue_parent_id", "queue", ["parent_id"])
    for table in ("messages", "messages_archive"):
        op.add_column(table, sa.Column("agent_id", sa.Integer(), nullable=True))
        op.add_column(table, sa.Column("has_files", sa.Boolean(), nullable=False, server_default=sa.false()))
        op.execute(
            f"UPDATE {table} SET has_files = 1 WHERE inbox_id IN "  # noqa: S608 our own names
            "(SELECT id FROM inbox WHERE attachments != '[]')"
        )
    op.add_column("prompts", _text("layers", "[]"))
    op.create_table(
        "actions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("tag", "subject", "state", "detail")),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["queue.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "seq"),
    )


def _conversations() -> None:
    op.add_column("queue", sa.Column("erased", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index("ix_conversations_last", "conversations", ["last_message_at", "id"])
    op.create_index("ix_media_digest", "media", ["digest"])
    op.create_table(
        "removed_conversations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "discarded_files",
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("path"),
    )


def _editions() -> None:
    """Keep a stamp that every change of some tables draws anew, an operator's own too.

    It is drawn at random, because a number that counts on would come twice where a change is rolled back.
    """
    op.create_table(
        "editions",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("stamp", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    for table, columns in EDITIONS.items():
        draw = (
            f"INSERT INTO editions (name, stamp) VALUES ('{table}', random()) "  # noqa: S608 our own names
            "ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp;"
        )
        for change in ("insert", f"update{columns}", "delete"):
            trigger = f"{table}_edition_{change.partition(' ')[0]}"
            op.execute(f"CREATE TRIGGER {trigger} AFTER {change.upper()} ON {table} BEGIN {draw} END")
