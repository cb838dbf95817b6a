"""A file beside the database whose bytes are given up when the disk is full, so that what was paid for finds room."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import structlog

RESERVE_BYTES = 512 * 1024
"""Room for some ten commits of an answer; random bytes, as a file system may keep others compressed or not at all."""
LOOK_SECONDS = 10.0
"""How often at most it is tried to make the file again."""

log = structlog.get_logger(__name__)


class Reserve:
    """The reserve of one database, shared by all processes that use it; ``path`` is that of the database.

    Only a process that asked for it makes it, and makes it again after it was given up.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}-reserve")
        self._look_at = 0.0
        self._wanted = False

    @property
    def missing(self) -> bool:
        """Whether it was given up, and there has been no room for it since."""
        return self._wanted and not self._path.exists()

    def want(self) -> None:
        """Make it, and keep it from now on."""
        self._wanted = True
        self.restore()

    def give_up(self) -> bool:
        """Give its room back to the disk; false when there was none."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        log.error("store.reserve_given_up", file=str(self._path), free_bytes=RESERVE_BYTES)
        return True

    def restore(self) -> None:
        """Make it again where it is missing and there is room for more than just that."""
        if not self._wanted or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        if not self.missing:
            return
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            if shutil.disk_usage(self._path.parent).free > 2 * RESERVE_BYTES:
                _write(fresh, os.urandom(RESERVE_BYTES))
                fresh.replace(self._path)
        except OSError as error:
            log.warning("store.no_reserve", file=str(self._path), reason=error.strerror)
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
