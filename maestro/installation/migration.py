"""Brings the store of a data folder up to this release, for installations of several processes."""

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

PATIENCE_SECONDS = 3.0
"""How long to wait for the folder: processes that start together all find the old tables, and one changes them."""


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
    """Create the store or bring it up to this release; enter the configured agents and bindings.

    Several processes may do so at once. A store of an earlier release needs the folder alone: processes of that
    release would go on with tables they do not know.

    Raises ``DataFolderBusy`` when others use it and may not, and what ``open_store`` raises.
    """
    database = settings.database
    with contextlib.ExitStack() as held:
        _take(held, settings.data_dir, database)
        before = revision(database)
        open_store(settings).close()
        after = revision(database)
    return Migration(outcome=_outcome(before, after), database=database, before=before, after=after)


def _take(held: contextlib.ExitStack, folder: Path, database: Path) -> None:
    """Take the folder, alone for as long as the tables are those of an earlier release; raises ``DataFolderBusy``."""
    until = time.monotonic() + PATIENCE_SECONDS
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
    """Whether an earlier release wrote the store."""
    if not revision(database):
        return False
    try:
        check(database)
    except OlderDatabase:
        return True
    return False


def _outcome(before: str, after: str) -> MigrationOutcome:
    if not before:
        return MigrationOutcome.CREATED
    return MigrationOutcome.UNCHANGED if before == after else MigrationOutcome.UPGRADED
