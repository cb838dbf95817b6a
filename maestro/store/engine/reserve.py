"""A file that reserves space on the disk of a SQLite database, and is deleted when the disk is full.

See docs/invariants.md: no answer bought twice.
"""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import structlog

RESERVE_BYTES = 512 * 1024
"""Room for ten commits of an answer; its bytes are random, because a file system may compress or skip zeros."""
LOOK_SECONDS = 10.0
"""The fewest seconds between two attempts to create the reserve again."""

log = structlog.get_logger(__name__)


class Reserve:
    """The reserve file, deleted to free space when the disk is full; ``path`` is the path of the database.

    All processes that use the database share the file. Only a process that called ``create`` creates the file, also
    again after its release.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}-reserve")
        self.look_at = 0.0
        """The moment of the next ``restore`` that can have an effect, by the monotonic clock."""
        self._wanted = False

    @property
    def is_missing(self) -> bool:
        """Whether the reserve was released, and the disk has had no room since to create it again."""
        return self._wanted and not self._path.exists()

    def create(self) -> None:
        """Create the reserve file, and recreate it after each release."""
        self._wanted, self.look_at = True, 0.0
        self.restore()

    def release(self) -> bool:
        """Delete the reserve file to free its space; return false if there was no file."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        log.error("store.reserve_given_up", file=str(self._path), free_bytes=RESERVE_BYTES)
        return True

    def restore(self) -> None:
        """Create the reserve file again if it is missing and the disk has room for twice its size."""
        if time.monotonic() < self.look_at:
            return
        self.look_at = time.monotonic() + LOOK_SECONDS
        if not self.is_missing:
            return
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            if shutil.disk_usage(self._path.parent).free > 2 * RESERVE_BYTES:
                write_file(fresh, os.urandom(RESERVE_BYTES))
                fresh.replace(self._path)
        except OSError as error:
            log.warning("store.no_reserve", file=str(self._path), reason=error.strerror)
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
