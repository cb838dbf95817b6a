"""The leases of a process: locks of the operating system beside a SQLite file, of the server with PostgreSQL.

See ADR 5 and ADR 42.
"""

import asyncio
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path

from ulid import ULID

from maestro.domain.cluster import Leases
from maestro.installation.data_folder import FileLock
from maestro.settings import Settings
from maestro.store.engine.database import import_engine

DISPLACED_SECONDS = 5.0
"""Seconds between two checks whether another process uses the store alone."""


class FileLease:
    """The lease of this name as a lock of the operating system, which a process loses only by its end."""

    number = 0

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._lock = FileLock(folder / f"{name}.lock")
        self.is_held = False

    def take(self) -> bool:
        """Take the lease; return false if another process holds it. Raises ``OSError``."""
        self.is_held = self._lock.take_lock()
        if self.is_held:
            self._lock.write_process_id()
        return self.is_held

    def describe_holder(self) -> str:
        """Return the process that took the lease last."""
        return self._lock.describe_holder()

    def release(self) -> None:
        """Release the lease, if this object holds it."""
        self._lock.release_lock()
        self.is_held = False


class FileLeases:
    """The leases of this process as files in a folder; the lock of ``process-<owner>.lock`` tells that it lives."""

    def __init__(self, folder: Path, owner: str) -> None:
        self.owner = owner
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._own = FileLock(self._path(owner))
        self._own.take_lock()

    def lease(self, name: str) -> FileLease:
        """Return the lease of this name, not yet taken."""
        return FileLease(name, self._folder)

    def find_gone(self, owners: Collection[str]) -> frozenset[str]:
        """Return those of these owners whose process has ended, and remove what they left in the folder."""
        return frozenset(owner for owner in owners if owner != self.owner and self._has_ended(owner))

    def find_problem(self) -> str:
        """Return nothing: the lock of the data folder keeps others out."""
        return ""

    def close(self) -> None:
        """Tell others that this process has ended."""
        self._path(self.owner).unlink(missing_ok=True)
        self._own.release_lock()

    def _has_ended(self, owner: str) -> bool:
        path = self._path(owner)
        if not owner or not path.exists():
            return True
        lock = FileLock(path)
        if not lock.take_lock():
            return False
        path.unlink(missing_ok=True)
        lock.release_lock()
        return True

    def _path(self, owner: str) -> Path:
        return self._folder / f"process-{owner}.lock"


def hold_start_lock(settings: Settings) -> AbstractContextManager[None]:
    """Return a lock that admits one process at a time, on all hosts that share the store; waits for it."""
    database = settings.database
    if isinstance(database, Path):
        return FileLock(settings.data_dir / "start.lock").hold_lock()
    lock: AbstractContextManager[None] = import_engine("locks").hold_lock(database, "start")
    return lock


def open_leases(settings: Settings, *, shared: bool) -> Leases:
    """Return the leases of this process; ``shared`` is whether other processes may use the store.

    Raises ``StoreUnreadable`` and ``DataFolderBusy``, whose messages name the fix.
    """
    owner, database = str(ULID()), settings.database
    if isinstance(database, Path):
        return FileLeases(settings.data_dir / "leases", owner)
    leases: Leases = import_engine("locks").SessionLeases(database, owner, shared=shared)
    return leases


async def stop_when_displaced(leases: Leases, stop: asyncio.Event) -> None:
    """Set the event when another process has taken the store while this one had lost its connection to the server."""
    while not leases.find_problem():  # noqa: ASYNC110 - the loss becomes known by a clock, and no one reports it
        await asyncio.sleep(DISPLACED_SECONDS)
    stop.set()
