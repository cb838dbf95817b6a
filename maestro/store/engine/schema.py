"""Creation and migration of the tables, and refusal of a database that this release cannot use.

Migrations expand first and contract later, so that a release also works on the tables of the next one (ADR 41).
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from maestro.domain.errors import NewerDatabase, OlderDatabase, OlderReleaseRuns
from maestro.store.engine.database import CONTRACT, Location, administer, has_earlier_processes, name_of

MIGRATIONS = Path(__file__).parents[1] / "migrations"
FIRST_CONTRACT = 1
_CONTRACTING = re.compile(r"[0-9]+_contract([0-9]+)_")
"""How the file name of a migration begins that removes or changes what releases of earlier contracts use."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """The recorded revision of the tables, and the earliest contract with which a release may use the tables.

    ``revision`` is empty without tables. ``contract`` is 0 in databases written before contracts were recorded.
    """

    revision: str = ""
    contract: int = 0


def upgrade_database(location: Location) -> None:
    """Create the database, or migrate its tables to this release; the tables of a later release stay if they can.

    Raises ``StoreUnreadable`` for a file that is no readable SQLite database, and ``NewerDatabase`` for tables that a
    later release has contracted. Raises ``OlderDatabase`` for a file of a version before the first release, and
    ``OlderReleaseRuns`` while a process uses what a migration would remove.
    """
    with administer(location, write=True) as connection:
        if not _has_usable_tables(connection, location):
            if has_earlier_processes(connection, find_required_contract()):
                raise OlderReleaseRuns(running_message(name_of(location)))
            run_migrations(connection)


def check_schema(location: Location) -> None:
    """Check that this release can use the tables of a database, without changing them.

    Raises ``OlderDatabase`` when an earlier release wrote the tables, and the errors of ``upgrade_database``.
    """
    with administer(location) as connection:
        require_release(connection, location)


def require_release(connection: Connection, location: Location) -> None:
    """Raise ``OlderDatabase`` or ``NewerDatabase`` unless this release can use the tables of an open database."""
    if not _has_usable_tables(connection, location):
        raise OlderDatabase(
            f"{name_of(location)} was written by an older version of Maestro. Bring the database up to date with "
            "`maestro migrate`."
        )


def read_revision(location: Location) -> str:
    """Return the revision of the tables in a database file; empty if the file is missing or has no tables.

    Raises ``StoreUnreadable`` when the file is no readable SQLite file.
    """
    if isinstance(location, Path) and not location.exists():
        return ""
    with administer(location) as connection:
        return _read_version(connection).revision


def find_next_contract(location: Location) -> int:
    """Return the contract that a migration to this release would begin; 0 if it would only expand the tables.

    Raises the errors of ``check_schema`` for tables that cannot be migrated.
    """
    if isinstance(location, Path) and not location.exists():
        return 0
    with administer(location) as connection:
        found, required = _read_version(connection), find_required_contract()
        is_pending = bool(found.revision) and not _has_usable_tables(connection, location)
    return required if is_pending and max(found.contract, FIRST_CONTRACT) < required else 0


def find_required_contract() -> int:
    """Return the earliest contract with which a release may use the tables after all migrations of this release."""
    names = (path.name for path in (MIGRATIONS / "versions").glob("[0-9]*_contract*_*.py"))
    return max([FIRST_CONTRACT, *(int(found[1]) for found in map(_CONTRACTING.match, names) if found)])


def _has_usable_tables(connection: Connection, location: Location) -> bool:
    """Return whether this release can use the tables as they are, and false if they can be migrated to it.

    Raises ``NewerDatabase``, and ``OlderDatabase`` for tables that no migration starts from.
    """
    version, known = _read_version(connection), list_revisions()
    found = version.revision
    if found and found < known[0]:
        raise OlderDatabase(
            f"{name_of(location)} was written by a development version of Maestro before its first release (schema "
            f"{found}), and cannot be upgraded. To start afresh, stop Maestro, move the file and its -wal and -shm "
            "files to another folder, and start Maestro again."
        )
    if not found or found in known:
        return found == known[-1]
    if not version.contract or version.contract > CONTRACT:
        raise NewerDatabase(
            f"{name_of(location)} was written by a newer version of Maestro (schema {found}), which has removed or "
            "changed what this version uses. Install that version, or restore a backup made before the upgrade."
        )
    return True


def run_migrations(connection: Connection, revision: str = "head") -> None:
    """Run all migrations up to a revision that a database has not had yet."""
    # Alembic is imported only here, because its import takes 0.1 s of CPU time and most starts need no migration.
    command, config = import_module("alembic.command"), import_module("alembic.config").Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    if revision == "head" and (required := find_required_contract()) > FIRST_CONTRACT:
        connection.execute(text("UPDATE alembic_version SET contract = :required"), {"required": required})


def _read_version(connection: Connection) -> SchemaVersion:
    """Return what is recorded about the tables of a database."""
    if not inspect(connection).has_table("alembic_version"):
        return SchemaVersion()
    row = connection.execute(text("SELECT * FROM alembic_version")).mappings().first()
    return SchemaVersion(str(row["version_num"]), int(row.get("contract", 0))) if row is not None else SchemaVersion()


def running_message(database: str) -> str:
    """Return why a migration has to wait, and what to do."""
    return (
        f"The migration of {database} to this version removes or changes what an earlier version of Maestro uses, and "
        "a process of that version is running. End it, then start this one again."
    )


@cache
def list_revisions() -> tuple[str, ...]:
    """Return the table revisions that this release knows, oldest first, from the file names of its migrations."""
    return tuple(sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py")))
