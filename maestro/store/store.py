"""The store: all durable data of Maestro, read and written in transactions."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from threading import local
from typing import Any, Generic, TypeVar

import structlog

from maestro.domain.cluster import Lease
from maestro.domain.errors import ScopeTooNarrow, StoreBusy, StoreFull
from maestro.store.cache import ChangeWatcher, StoreState
from maestro.store.engine.database import BUSY_SECONDS, Location, WriteHistory, open_database
from maestro.store.engine.repository import Link
from maestro.store.engine.schema import upgrade_database
from maestro.store.engine.scopes import CLAIMS, JOB, LANE, Scope
from maestro.store.transaction import Transaction

Clock = Callable[[], datetime]

PROVEN_SECONDS = 10.0
"""The seconds after a successful write for which the store counts as writable without a test write."""
NO_ROOM = (
    "the disk of the store is nearly full: the space reserved for paid answers was released. "
    "Free some space on its disk."
)

Result = TypeVar("Result")

LATE_SECONDS = 1.0
"""The seconds after which the content of a late commit is written to a file, in case the process dies."""
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0

log = structlog.get_logger(__name__)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class Store:
    """The database of an installation, which threads may share an instance."""

    def __init__(self, location: Location, clock: Clock = utc_now, busy_seconds: float = BUSY_SECONDS) -> None:
        """``busy_seconds`` is how long a write waits for the database's lock before it fails."""
        self._clock = clock
        self.location = location
        self.process = ""
        """The name of this process, such as ``worker@host:4711``; new jobs and attempts at steps record it."""
        self._database = open_database(location, busy_seconds)
        self._open = local()
        self._caches: dict[str, Any] = {}
        self.fences: dict[tuple[str, str], Lease] = {}
        """The leases of the connectors that this process runs, by platform and account; see ``Fencing``."""
        self.changes = ChangeWatcher(self.mark, self._read_state, clock, self._database.listen)

    @classmethod
    def open(cls, location: Location, clock: Clock = utc_now) -> "Store":
        """Open the store, and migrate its tables to this release.

        Raises ``StoreUnreadable``, ``NewerDatabase`` and ``OlderDatabase``, whose messages name the fix.
        """
        upgrade_database(location)
        return cls(location, clock)

    @contextmanager
    def begin(self, *, job: str = "", lane: str = "", claims: bool = False) -> Iterator[Transaction]:
        """Open a writing transaction, which commits at the end of the block and rolls back on an exception.

        Without an argument it is the only writing transaction of all processes. With one, transactions of other scopes
        may write beside it (``maestro.store.engine.scopes``), and it raises ``ScopeTooNarrow`` where it would change
        anything else; call it in ``widen_scope``. SQLite ignores scopes.

        Inside another writing transaction of the same thread, the block is part of that transaction, with a time of its
        own, and both commit together. Code need not know whether it runs in a transaction, but the scope of the outer
        one must include that of the block, else the block raises ``ScopeTooNarrow``. Raises ``StoreBusy`` when another
        program holds the lock for too long, ``StoreFull`` when the disk is full, and ``StoreDamaged``.
        """
        outer, scope = self._outer_transaction, None
        if self._database.has_scopes and not getattr(self._open, "alone", False):
            scope = Scope(JOB, job) if job else Scope(LANE, lane) if lane else CLAIMS if claims else None
        if outer is not None:
            if outer.scoped is not None and outer.scoped.scope != scope:
                outer.scoped.refuse("the rows of a transaction inside of it, which has another scope")
            yield Transaction(outer, self._clock())
            outer.flush_objects()
            return
        with (
            self._database.begin_transaction(scope) as connection,
            closing(Link(connection, self._caches, self.fences, scope, self.process)) as link,
        ):
            self._open.link = link
            try:
                yield Transaction(link, self._clock())
                link.flush_writes()
            finally:
                self._open.link = None
        if self._database.reserve is not None:
            self._database.reserve.restore()
        link.call_after_commit()

    def widen_scope(self, work: Callable[[], Result]) -> Result:
        """Return the result of ``work``, repeated without the scopes of its transactions if one of them was too narrow.

        ``work`` must have no effect before its transaction commits.
        """
        try:
            return work()
        except ScopeTooNarrow:
            if self.is_writing or getattr(self._open, "alone", False):
                raise
        self._open.alone = True
        try:
            return work()
        finally:
            self._open.alone = False

    @contextmanager
    def view(self, *, settled: bool = False) -> Iterator[Transaction]:
        """Open a read-only transaction on one consistent snapshot; raises ``StoreBusy`` as ``begin`` does.

        With ``settled``, no row is committed later with an id below the highest one of the snapshot, so a reader that
        continues after that id skips no row. A write in the transaction raises. Inside a writing transaction of the
        same thread, the block reads uncommitted changes.
        """
        outer = self._outer_transaction
        if outer is not None:
            yield Transaction(outer, self._clock())
            return
        with (
            self._database.view(settled=settled) as connection,
            closing(Link(connection, self._caches, self.fences, process=self.process)) as link,
        ):
            yield Transaction(link, self._clock())

    def write(self, work: Callable[[Transaction], Result], *, job: str = "") -> Result:
        """Call ``work`` in a writing transaction and return its result; coroutines call this method in a thread.

        With ``job``, ``work`` changes rows of this job; see ``begin`` and ``widen_scope``.
        """

        def work_in_transaction() -> Result:
            with self.begin(job=job) as tx:
                return work(tx)

        return self.widen_scope(work_in_transaction) if job else work_in_transaction()

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Call ``work`` in a read-only transaction and return its result; coroutines call this method in a thread."""
        with self.view() as tx:
            return work(tx)

    @property
    def now(self) -> datetime:
        """The current time by the store's clock."""
        return self._clock()

    @property
    def is_writing(self) -> bool:
        """Whether the current code runs inside a writing transaction."""
        return self._outer_transaction is not None

    @property
    def _outer_transaction(self) -> Link | None:
        """The writing transaction of this thread, or None."""
        return getattr(self._open, "link", None)

    def mark(self) -> str:
        """Return a text that differs after every commit of any process, without reading a table.

        Only texts of the same store object can be compared, and only while the store is open.
        """
        return self._database.read_mark()

    def _read_state(self, watched: Collection[str]) -> StoreState:
        with self.view() as tx:
            return tx.system.states.read_state(watched)

    @property
    def write_history(self) -> WriteHistory:
        """The outcomes of this process's writes to the database."""
        return self._database.history

    def find_problem(self) -> str | None:
        """Return why the store cannot be read or written, or None if it can be.

        Makes a test write if no write succeeded lately, or if the last write failed.
        """
        try:
            with self.view() as tx:
                tx.jobs.count_pending()
            if self.write_history.is_failing or time.time() - self.write_history.succeeded_at > PROVEN_SECONDS:
                self._database.test_write()
        except StoreBusy as error:
            return str(error)
        if (reserve := self._database.reserve) is None:
            return None
        reserve.restore()
        return NO_ROOM if reserve.is_missing else None

    def return_space(self) -> bool:
        """Return some of the space of deleted rows to the disk, in a short transaction; return whether to go on."""
        return self._database.return_space()

    def create_reserve(self) -> None:
        """Maintain a reserve file; when the disk is full, its space is released to commit answers."""
        if self._database.reserve is not None:
            self._database.reserve.create()

    def release_reserve(self) -> bool:
        """Delete the reserve file to free its space; return false if the file was already deleted."""
        return self._database.reserve is not None and self._database.reserve.release()

    def close(self) -> None:
        self._database.close()


async def commit_persistently(
    store: Store, commit: Callable[[], Result], spool: Callable[[], Awaitable[None]] | None = None
) -> Result:
    """Call ``commit`` in a thread until the store accepts it, and return the result of ``commit``.

    When the disk is full, the store's reserve file is deleted. ``spool`` writes the content to a file, once the commit
    is late or has failed; it is repeated after an ``OSError``. After a cancellation of the caller, the current attempt
    is the last one; the cancellation is then raised, even if the attempt succeeded.
    """
    work = _Commit(store, commit, spool)
    task = asyncio.current_task()
    cancelled = task is not None and task.cancelling() > 0
    if cancelled:
        work.last.set()
    trying = asyncio.create_task(work.run())
    try:
        result = await asyncio.shield(trying)
    except asyncio.CancelledError:
        work.last.set()
        await asyncio.wait([trying])
        if not trying.cancelled():
            # Reading the exception prevents a warning of asyncio; the caller gets the cancellation instead.
            trying.exception()
        raise
    except StoreBusy:
        # StoreBusy comes only from the last attempt, which a cancellation requested.
        raise asyncio.CancelledError from None
    if cancelled:
        raise asyncio.CancelledError
    return result


class _Commit(Generic[Result]):
    """A commit that is repeated until it succeeds; after the event ``last`` is set, only one more attempt is made."""

    def __init__(self, store: Store, commit: Callable[[], Result], spool: Callable[[], Awaitable[None]] | None) -> None:
        self._store = store
        self._commit = commit
        self._spool = spool
        self.last = asyncio.Event()

    async def run(self) -> Result:
        pause = FIRST_PAUSE
        while True:
            trying = asyncio.create_task(asyncio.to_thread(self._commit))
            try:
                if self._spool is not None:
                    await asyncio.wait([trying], timeout=LATE_SECONDS)
                if self._spool is not None and not trying.done():
                    await self._try_to_spool(self._spool)
                return await trying
            except StoreBusy as error:
                if isinstance(error, StoreFull) and await asyncio.to_thread(self._store.release_reserve):
                    continue
                if self._spool is not None:
                    await self._try_to_spool(self._spool)
                if self.last.is_set():
                    raise
                log.warning("store.commit_repeated", reason=str(error), pause_seconds=pause)
            # A cancellation of the caller ends the pause; one last attempt follows.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.last.wait()
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _try_to_spool(self, spool: Callable[[], Awaitable[None]]) -> None:
        try:
            await spool()
            self._spool = None
        except OSError as error:
            log.warning("store.spool_failed", reason=error.strerror)


async def result_despite_cancellation(work: Coroutine[Any, Any, Result]) -> Result:
    """Return a coroutine's result even if the caller is cancelled meanwhile, so that the caller can commit it.

    ``maestro.store.store.commit_persistently`` then raises the cancellation.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        return task.result()
