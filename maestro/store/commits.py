"""Commits of what has happened already and must not be lost because the store cannot be written now."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import structlog

from maestro.domain.errors import StoreBusy, StoreFull
from maestro.store.store import Store

Result = TypeVar("Result")

LATE_SECONDS = 1.0
"""How long a commit may take before what it records is kept outside of the store: a process may die while it waits."""
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0

log = structlog.get_logger(__name__)


async def committed(store: Store, commit: Callable[[], Result], spool: Callable[[], object] | None = None) -> Result:
    """Return what ``commit`` returns, repeated until the store takes it; both callables run in threads.

    When the disk is full, the reserve of the store is given up. ``spool`` keeps what is to be committed outside of the
    store and is called once the commit is late or has failed. A cancellation lets the try under way end, and is raised
    then, whether that try succeeded or not.
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
            trying.exception()  # the cancellation is what the caller hears of
        raise
    except StoreBusy:
        raise asyncio.CancelledError from None  # only the last try of a cancelled commit may fail
    if cancelled:
        raise asyncio.CancelledError
    return result


class _Commit(Generic[Result]):
    """One commit; once ``last`` is set, it is not repeated any more."""

    def __init__(self, store: Store, commit: Callable[[], Result], spool: Callable[[], object] | None) -> None:
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
                    await self._spooled(self._spool)
                return await trying
            except StoreBusy as error:
                if isinstance(error, StoreFull) and await asyncio.to_thread(self._store.make_room):
                    continue
                if self._spool is not None:
                    await self._spooled(self._spool)
                if self.last.is_set():
                    raise
                log.warning("store.commit_repeated", reason=str(error), pause_seconds=pause)
            await self._wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _wait(self, seconds: float) -> None:
        """Wait; a cancellation ends the wait, and one more try is made."""
        waiting = asyncio.create_task(self.last.wait())
        await asyncio.wait([waiting], timeout=seconds)
        waiting.cancel()

    async def _spooled(self, spool: Callable[[], object]) -> None:
        """Spool in a thread of its own: those of the store may all be waiting for the lock of the database."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        try:
            await asyncio.get_running_loop().run_in_executor(thread, spool)
            self._spool = None
        except OSError as error:
            log.warning("store.spool_failed", reason=error.strerror)
        finally:
            thread.shutdown(wait=False)
