"""A release with one migration more than this one, so that a database of this release is an older one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maestro.store.engine import schema

NEXT = "9000"
MIGRATION = f'''
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{schema.list_revisions()[-1]}"


def upgrade() -> None:
    op.add_column("agents", sa.Column("motto", sa.String(), nullable=False, server_default="onward"))
    op.create_table("mottos", sa.Column("id", sa.Integer(), primary_key=True))
'''


@contextmanager
def next_release(folder: Path) -> Iterator[str]:
    """Run the block as that release, whose migrations are copied to a folder; gives its revision."""
    migrations = folder / "migrations"
    shutil.copytree(schema.MIGRATIONS, migrations, ignore=shutil.ignore_patterns("__pycache__"))
    (migrations / "versions" / f"{NEXT}_mottos.py").write_text(MIGRATION, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", migrations)
        schema.list_revisions.cache_clear()
        yield NEXT
    schema.list_revisions.cache_clear()
