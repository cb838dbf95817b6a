"""The database behind the store, chosen by its location: SQLite in the data folder, or PostgreSQL for several hosts.

See ADR 40.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Connection, make_url

from maestro.domain.errors import ConfigurationError
from maestro.store.engine.reserve import Reserve
from maestro.store.engine.scopes import Scope

Location: TypeAlias = Path | str
"""The path of a SQLite file, or the URL of a PostgreSQL database."""

CONTRACT = 1
"""The contract by which this release uses the tables (ADR 41).

It rises in the release that stops using a table or a column. A later migration that removes these begins the contract.
"""

BUSY_SECONDS = 30.0
"""The most seconds that a transaction waits for the lock of the database, or a thread for a connection."""


@dataclass(frozen=True, slots=True)
class WriteHistory:
    """The outcomes of this process's writes to the database.

    Moments are seconds since 1970, and 0 means never. ``problem`` is the reason of the last failed write, and
    ``replaced`` counts lost writing connections that were replaced.
    """

    succeeded_at: float = 0.0
    failed_at: float = 0.0
    problem: str = ""
    failures: int = 0
    replaced: int = 0

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed."""
        return self.failed_at > self.succeeded_at


class Database(Protocol):
    """A database with the tables of the store, which threads may share; its methods raise ``StoreBusy``."""

    history: WriteHistory
    has_scopes: bool
    """Whether writing transactions of different scopes run side by side."""

    def begin_transaction(self, scope: Scope | None = None) -> AbstractContextManager[Connection]:
        """Return a writing transaction, which commits at the end of the block; without a scope, it is the only one."""

    def view(self, *, settled: bool = False) -> AbstractContextManager[Connection]:
        """Return a read-only transaction on one consistent snapshot.

        With ``settled``, no row that is committed later gets an id below the highest id of the snapshot.
        """

    def read_mark(self) -> str:
        """Return a text that differs after every commit of any process; see ``Store.mark``."""

    def listen(self, heard: Callable[[], None]) -> float:
        """Call ``heard`` after each commit of any process that changes what loops wait for, from any thread.

        Return the seconds between two looks at the store that suffice beside that. 0 means that nothing will be heard.
        """

    def test_write(self) -> None:
        """Test writing."""

    @property
    def reserve(self) -> Reserve | None:
        """The reserve on the disk of the database, or None if a server manages the disk."""

    def return_space(self) -> bool:
        """Return some of the space of deleted rows to the disk; return whether to go on."""

    def close(self) -> None:
        """Close all connections."""


def open_database(location: Location, busy_seconds: float = BUSY_SECONDS) -> Database:
    """Return the database of a location; its tables are not checked."""
    database: Database = _engine_of(location).open_database(location, busy_seconds)
    return database


@contextmanager
def administer(location: Location, *, write: bool = False, observe: bool = False) -> Iterator[Connection]:
    """Yield a connection in a transaction, to migrate or check the tables; raises ``StoreUnreadable``.

    With ``observe`` nothing is created or changed, no file either.
    """
    with _engine_of(location).administer(location, write=write, observe=observe) as connection:
        yield connection


def has_earlier_processes(connection: Connection, contract: int) -> bool:
    """Return whether a process that uses the tables by an earlier contract is connected to the database server.

    SQLite does not know its processes, so the answer is false there: they hold a lock in the data folder
    (``maestro.installation.storage``).
    """
    if connection.dialect.name == "sqlite":
        return False
    found: bool = import_module("maestro.store.engine.postgresql").has_earlier_processes(connection, contract)
    return found


def name_of(location: Location) -> str:
    """Return the location as shown to operators, without a password."""
    return str(location) if isinstance(location, Path) else make_url(location).render_as_string(hide_password=True)


def _engine_of(location: Location) -> Any:
    return import_engine("sqlite" if isinstance(location, Path) else "postgresql")


def import_engine(name: str) -> Any:
    """Import a module of this package; raises ``ConfigurationError`` without the driver of PostgreSQL."""
    try:
        return import_module(f"maestro.store.engine.{name}")
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise ConfigurationError(
            "A store on PostgreSQL needs a driver that is not installed: install maestro-agents[postgresql], or "
            "psycopg[binary] beside Maestro. Maestro's container image has it."
        ) from None
