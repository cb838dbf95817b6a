"""The store: everything durable that an operator may query, behind two kinds of transaction."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import local
from typing import Any

from maestro.domain.errors import StoreBusy
from maestro.store.changes import ChangeWatcher, StoreState
from maestro.store.engine import BUSY_SECONDS, DATABASE_ERRORS, open_readers, store_failure
from maestro.store.repository import Link
from maestro.store.reserve import Reserve
from maestro.store.schema import upgrade
from maestro.store.sentinel import Sentinel
from maestro.store.transaction import Transaction
from maestro.store.writer import WriteHistory, Writer

Clock = Callable[[], datetime]

PROVEN_SECONDS = 10.0
"""How long a write that succeeded proves that the store can be written."""
NO_ROOM = (
    "the disk of the store is nearly full: what was kept free on it for answers that are paid for has been given up. "
    "Free some space on its disk."
)


def utc_now() -> datetime:
    """Return the time, aware."""
    return datetime.now(UTC)


class Store:
    """The database of one data folder; safe to share between threads."""

    def __init__(self, path: Path, clock: Clock = utc_now, busy_seconds: float = BUSY_SECONDS) -> None:
        """``busy_seconds`` is how long a write waits for its turn before it fails."""
        self._clock = clock
        self.path = path
        self._writer = Writer(path, busy_seconds)
        self._reserve = Reserve(path)
        self._readers = open_readers(path)
        self._sentinel = Sentinel(path)
        self._open = local()
        self._shelves: dict[str, Any] = {}
        self.changes = ChangeWatcher(self.mark, self._state, clock)

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

        Within another one of the same thread it is a part of that one, with a time of its own: all of it is committed
        together, so that steps of a flow need not know whether they are done alone. Raises ``StoreBusy`` when another
        program holds the lock for too long, ``StoreFull`` when the disk is full, and ``StoreDamaged``.
        """
        outer = self._outer
        if outer is not None:
            yield Transaction(outer, self._clock())
            outer.flush_objects()
            return
        with self._writer.begin() as connection, closing(Link(connection, self._shelves)) as link:
            self._open.link = link
            try:
                yield Transaction(link, self._clock())
                link.flush()
            finally:
                self._open.link = None
        self._reserve.restore()
        link.committed()

    @contextmanager
    def view(self) -> Iterator[Transaction]:
        """Read one consistent snapshot; writing raises. Raises ``StoreBusy`` as ``begin`` does.

        Within a transaction that writes, in the same thread, it reads what that one has written.
        """
        outer = self._outer
        if outer is not None:
            yield Transaction(outer, self._clock())
            return
        with _typed(self.path), self._readers.begin() as connection, closing(Link(connection, self._shelves)) as link:
            yield Transaction(link, self._clock())

    @property
    def now(self) -> datetime:
        """The time by the clock of the store."""
        return self._clock()

    @property
    def is_writing(self) -> bool:
        """Whether the running code is within a transaction that writes."""
        return self._outer is not None

    @property
    def _outer(self) -> Link | None:
        """The transaction of this thread that writes, if it is in one."""
        return getattr(self._open, "link", None)

    def mark(self) -> str:
        """Return a word that is another one after anybody, in any process, committed a change; it reads no table.

        It counts for this store alone, as long as it is open.
        """
        with _typed(self.path):
            return self._sentinel.mark()

    def _state(self, watched: Collection[str]) -> StoreState:
        with self.view() as tx:
            return tx.states.now(watched)

    @property
    def writes(self) -> WriteHistory:
        """How writing went in this process."""
        return self._writer.history

    def problem(self) -> str | None:
        """Return why the store cannot be read or written, or None.

        Where no write succeeded lately, or the last one failed, one is made.
        """
        try:
            with self.view() as tx:
                tx.jobs.pending()
            if self.writes.failing or time.time() - self.writes.succeeded_at > PROVEN_SECONDS:
                self._writer.probe()
        except StoreBusy as error:
            return str(error)
        self._reserve.restore()
        return NO_ROOM if self._reserve.missing else None

    def keep_reserve(self) -> None:
        """Keep some room on the disk for what must not be lost when the disk is full."""
        self._reserve.want()

    def make_room(self) -> bool:
        """Give the reserve up; false when that makes no room, because it was given up before."""
        return self._reserve.give_up()

    def close(self) -> None:
        """Close every connection."""
        self._writer.close()
        self._readers.dispose()
        self._sentinel.close()


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    """Turn the driver's errors into ours, without the statement that met them."""
    try:
        yield
    except DATABASE_ERRORS as error:
        if failure := store_failure(error, path):
            raise failure from None
        raise
