"""A release with one migration more than this one, so that a database of this release is an older one."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maestro.installation import storage
from maestro.store.engine import postgresql, schema
from maestro.store.engine.database import CONTRACT
from tests.support import postgresql as postgresql_server
from tests.support.separate import Part

ROOT = Path(__file__).parents[2]
NEXT = "9000"
EXPANDING = f"{NEXT}_mottos.py"
CONTRACTING = f"{NEXT}_contract{CONTRACT + 1}_mottos.py"
MIGRATION = f'''
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{schema.list_revisions()[-1]}"


def upgrade() -> None:
    op.add_column("agents", sa.Column("motto", sa.String(), nullable=False, server_default="onward"))
    op.add_column("queue", sa.Column("colour", sa.String(), nullable=True, server_default="green"))
    op.create_table("mottos", sa.Column("id", sa.Integer(), primary_key=True), sa.Column("text", sa.String()))
    op.create_index("mottos_of_agents", "agents", ["motto"])
    op.create_index("colours_of_jobs", "queue", ["colour", "status"])
'''


@contextmanager
def next_release(folder: Path, *, contracts: bool = False) -> Iterator[str]:
    """Run the block as that release, whose migrations are copied to a folder; gives its revision.

    With ``contracts``, its migration begins a contract that this release does not know.
    """
    migrations = folder / "migrations"
    shutil.copytree(schema.MIGRATIONS, migrations, ignore=shutil.ignore_patterns("__pycache__"))
    (migrations / "versions" / (CONTRACTING if contracts else EXPANDING)).write_text(MIGRATION, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", migrations)
        for module in (schema, postgresql, storage):
            patch.setattr(module, "CONTRACT", CONTRACT + contracts)
        schema.list_revisions.cache_clear()
        yield NEXT
    schema.list_revisions.cache_clear()


PACKAGES = ("activities", "api", "connectors", "maestro", "temporal", "workflows")
NUMBER = "9.0.0"
COMMAND_BEFORE = "        for group in path(self._results.get):\n"
"""Where the workflow of the next release makes one more command."""


def copy_next_release(folder: Path) -> Path:
    """Write that release into a folder: another number, one migration more, and one workflow command more."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "maestro" / "domain" / "release.py").write_text(f"def release() -> str:\n    return {NUMBER!r}\n")
    versions = folder / "maestro" / "store" / "migrations" / "versions"
    (versions / EXPANDING).write_text(MIGRATION, encoding="utf-8")
    definitions = folder / "workflows" / "definitions.py"
    code = definitions.read_text(encoding="utf-8")
    assert code.count(COMMAND_BEFORE) == 1
    more = f"        await workflow.sleep(0.01)\n{COMMAND_BEFORE}"
    definitions.write_text(code.replace(COMMAND_BEFORE, more), encoding="utf-8")
    return folder


class ReleasePart(Part):
    """A process of another release, started by its own code; ``arguments`` are what stands behind ``maestro``."""

    def __init__(self, release: Path, store: Path, folder: Path, *arguments: str) -> None:
        super().__init__([sys.executable, "-m", "maestro.cli", *arguments], folder)
        url = {"MAESTRO_STORE_URL": postgresql_server.database_url(store)} if postgresql_server.wanted() else {}
        self._environment = {**os.environ, **url, "PYTHONPATH": str(release), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            cwd=self._folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
