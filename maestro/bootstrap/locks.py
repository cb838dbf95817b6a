"""Locks of the operating system on files: a kill frees them at once, so no stale lock can remain."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


class FileLock:
    """A lock that processes on one machine, containers on one volume included, hold alone or share.

    Only flock will do: a lock that is merely a file would outlive a kill.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def take(self, *, shared: bool = False, wait: bool = False) -> bool:
        """Take the lock; false when another process has it and we do not ``wait``. Raises ``OSError``."""
        # Not close-on-exec by chance: Python opens files so that a child process does not inherit the lock.
        file = self._path.open("a+")
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            return False
        except BaseException:
            file.close()
            raise
        self._file = file
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock alone for the length of the block, after waiting for it; raises ``OSError``."""
        self.take(wait=True)
        try:
            yield
        finally:
            self.release()

    def sign(self) -> None:
        """Write down which process has the lock."""
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def holder(self) -> str:
        """Return who signed the lock: ``process 123``, or ``another process``."""
        try:
            return f"process {int(self._path.read_text())}"
        except (OSError, ValueError):  # the holder is between its lock and its signature
            return "another process"

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None
