"""The store: everything durable that an operator may query, behind two kinds of transaction."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.exc import DatabaseError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maestro.domain.errors import StoreBusy, StoreDamaged
from maestro.store.engine import open_readers, open_writer
from maestro.store.repository import Link
from maestro.store.schema import damage, upgrade
from maestro.store.sentinel import Sentinel
from maestro.store.transaction import Transaction

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the time, aware."""
    return datetime.now(UTC)


class Store:
    """The database of one data folder; safe to share between threads."""

    def __init__(self, path: Path, clock: Clock = utc_now) -> None:
        self._path = path
        self._clock = clock
        self._writer = open_writer(path)
        self._readers = open_readers(path)
        self._sentinel = Sentinel(path)

    @classmethod
    def open(cls, path: Path, clock: Clock = utc_now) -> "Store":
        """Open the store and bring its tables up to this release.

        Raises ``StoreUnreadable`` or ``NewerDatabase``, each with the fix.
        """
        upgrade(path)
        return cls(path, clock)

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """Write: begins immediately, commits at the end of the block, rolls back on an exception.

        Raises ``StoreBusy`` when somebody else holds the lock for too long, or the disk is full, and
        ``StoreDamaged``.
        """
        with _typed(self._path), self._writer.begin() as connection, closing(Link(connection)) as link:
            yield Transaction(link, self._clock())
            link.flush()

    @contextmanager
    def view(self) -> Iterator[Transaction]:
        """Read one consistent snapshot; writing raises. Raises ``StoreBusy`` as ``begin`` does."""
        with _typed(self._path), self._readers.begin() as connection, closing(Link(connection)) as link:
            yield Transaction(link, self._clock())

    def mark(self) -> str:
        """Return a word that is another one after anybody, in any process, committed a change; it reads no table.

        It counts for this store alone, as long as it is open.
        """
        with _typed(self._path):
            return self._sentinel.mark()

    def problem(self) -> str | None:
        """Return why the store cannot be read, or None."""
        try:
            with self.view() as tx:
                tx.jobs.pending()
        except StoreBusy as error:
            return str(error)
        return None

    def close(self) -> None:
        """Close every connection."""
        self._writer.dispose()
        self._readers.dispose()
        self._sentinel.close()


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    """Turn the driver's errors into ours, without the statement that met them."""
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError, PoolTimeout) as error:
        cause = error.orig if isinstance(error, DatabaseError) else error
        if damaged := damage(path, cause):
            raise StoreDamaged(damaged) from None
        if not isinstance(cause, (sqlite3.OperationalError, PoolTimeout)):
            raise
        full = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        fix = "Free some space on its disk." if full else "Check its disk and who else uses the database."
        raise StoreBusy(f"the store did not answer: {cause}. {fix}") from None
