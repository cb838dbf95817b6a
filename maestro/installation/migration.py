"""Migrates the store of a data folder to this release, for installations with several processes."""

import contextlib
import time
from enum import StrEnum
from pathlib import Path

from maestro.domain.errors import DataFolderBusy, OlderDatabase
from maestro.domain.values import Value
from maestro.installation.data_folder import DataFolder
from maestro.installation.storage import open_store
from maestro.settings import Settings
from maestro.store.engine.schema import check, revision

WAIT_SECONDS = 3.0
"""Seconds to wait for the folder while another process, started at the same time, migrates the tables."""


class MigrationOutcome(StrEnum):
    """The result of a migration."""

    CREATED = "created"
    UPGRADED = "upgraded"
    UNCHANGED = "unchanged"


class Migration(Value):
    """A completed migration; ``before`` and ``after`` are schema revisions, ``before`` empty for a new store."""

    outcome: MigrationOutcome
    database: Path
    before: str
    after: str


def migrate(settings: Settings) -> Migration:
    """Create the store or migrate it to this release, and write the configured agents and bindings.

    Several processes may call this at once. Migrating the store of an earlier release needs an exclusive lock on the
    folder, because processes of that release do not know the new tables.

    Raises ``DataFolderBusy`` if another process uses the old tables, and the errors of ``open_store``.
    """
    database = settings.database
    with contextlib.ExitStack() as held:
        _lock_folder(held, settings.data_dir, database)
        before = revision(database)
        open_store(settings).close()
        after = revision(database)
    outcome = MigrationOutcome.UNCHANGED if before == after else MigrationOutcome.UPGRADED
    return Migration(
        outcome=outcome if before else MigrationOutcome.CREATED, database=database, before=before, after=after
    )


def _lock_folder(held: contextlib.ExitStack, folder: Path, database: Path) -> None:
    """Lock the data folder, exclusively if the store must be migrated; raises ``DataFolderBusy``."""
    until = time.monotonic() + WAIT_SECONDS
    while _needs_migration(database):
        try:
            held.enter_context(DataFolder(folder))
        except DataFolderBusy:
            if time.monotonic() > until:
                raise
        else:
            return
    held.enter_context(DataFolder(folder, shared=True))


def _needs_migration(database: Path) -> bool:
    """Tell whether the store has the tables of an earlier release."""
    if not revision(database):
        return False
    try:
        check(database)
    except OlderDatabase:
        return True
    return False
