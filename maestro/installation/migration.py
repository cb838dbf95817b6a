"""Migrates the store of a data folder to this release, for installations of several processes."""

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
"""Seconds to wait for the folder: of processes that start together, one migrates the tables."""


class MigrationOutcome(StrEnum):
    """The result of a migration."""

    CREATED = "created"
    UPGRADED = "upgraded"
    UNCHANGED = "unchanged"


class Migration(Value):
    """A completed migration; ``before`` and ``after`` are table revisions, ``before`` empty for a new store."""

    outcome: MigrationOutcome
    database: Path
    before: str
    after: str


def migrate(settings: Settings) -> Migration:
    """Create the store or migrate it to this release, and write the configured agents and bindings.

    Several processes may call this at once. Migrating the store of an earlier release needs the folder alone, because
    processes of that release do not know the new tables.

    Raises ``DataFolderBusy`` if another process uses the old tables, and the errors of ``open_store``.
    """
    database = settings.database
    with contextlib.ExitStack() as held:
        _take(held, settings.data_dir, database)
        before = revision(database)
        open_store(settings).close()
        after = revision(database)
    outcome = MigrationOutcome.UNCHANGED if before == after else MigrationOutcome.UPGRADED
    return Migration(
        outcome=outcome if before else MigrationOutcome.CREATED, database=database, before=before, after=after
    )


def _take(held: contextlib.ExitStack, folder: Path, database: Path) -> None:
    """Lock the folder, alone while the tables are those of an earlier release; raises ``DataFolderBusy``."""
    until = time.monotonic() + WAIT_SECONDS
    while _outdated(database):
        try:
            held.enter_context(DataFolder(folder))
        except DataFolderBusy:
            if time.monotonic() > until:
                raise
        else:
            return
    held.enter_context(DataFolder(folder, shared=True))


def _outdated(database: Path) -> bool:
    """Tell whether the store has the tables of an earlier release."""
    if not revision(database):
        return False
    try:
        check(database)
    except OlderDatabase:
        return True
    return False
