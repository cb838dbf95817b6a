"""The data folder: made, checked, and owned by one ``maestro up``, or shared by processes that work together."""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from maestro.bootstrap.locks import FileLock
from maestro.domain.errors import ConfigurationError, DataFolderBusy

LOCK = "maestro.lock"
_PID = "maestro.pid"
OWNER_ONLY = 0o077
"""The mask of files and folders that only their owner may read: prompts, keys and what people sent are in them."""
CONTENT = (
    *("maestro.db*", "temporal.db*", "temporal.json", "*.key", "*.lock", "maestro.pid"),
    *("answers", "leases", "logs", "media", "sessions", "uploads", "workspaces"),
)
"""What Maestro makes in the folder; it may be one that holds other things as well."""
TRIES_ALONE = 4
TRIES_SHARED = 60
TRY_AGAIN_SECONDS = 0.05


def close_to_others(paths: Iterable[Path]) -> None:
    """Take from everybody but their owner what they may do with these files, and with all in these folders."""
    for path in paths:
        with contextlib.suppress(OSError):  # gone since, or of another user, who decides about it
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & OWNER_ONLY:
                path.chmod(stat.S_IMODE(mode) & ~OWNER_ONLY)
            if stat.S_ISDIR(mode):
                close_to_others(path.iterdir())


class DataFolder:
    """The folder for everything Maestro keeps; as a context manager it is held.

    Meanwhile all that this process creates, and what it starts, is readable by its owner only.

    Who runs its own Temporal server has the folder alone. Worker, API and connectors beside a cluster share it with
    each other, but not with one that wants it alone.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        """``path`` is created on entry if it does not exist, readable by its owner only."""
        self.path = path.expanduser().absolute()
        self._shared = shared
        self._lock = FileLock(self.path / LOCK)
        self._mask = 0

    @property
    def pid_file(self) -> Path:
        """Holds the process id of who has the folder alone; gone after a clean exit."""
        return self.path / _PID

    def __enter__(self) -> "DataFolder":
        """Take the folder.

        Raises DataFolderBusy when another process has it, ConfigurationError when it cannot be created or written.
        """
        self._mask = os.umask(OWNER_ONLY)
        with contextlib.ExitStack() as undo:
            undo.callback(os.umask, self._mask)
            try:
                self._take()
            except OSError as error:
                raise ConfigurationError(self._unusable(error)) from error
            undo.pop_all()
        close_to_others(path for pattern in CONTENT for path in self.path.glob(pattern))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the folder back."""
        if not self._shared:
            self.pid_file.unlink(missing_ok=True)
        self._lock.release()
        os.umask(self._mask)

    def _take(self) -> None:
        if not self.path.is_dir():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)  # another may be making it at this moment
        if not self._locked():
            raise DataFolderBusy(self._busy())
        try:
            # Also by those who share the folder: that it can be written is known before anything else begins.
            fresh = self.pid_file.with_suffix(f".{os.getpid()}")
            fresh.write_text(f"{os.getpid()}\n")
            if self._shared:
                fresh.unlink(missing_ok=True)
                self.pid_file.unlink(missing_ok=True)  # of one who had the folder alone and was killed
            else:
                fresh.replace(self.pid_file)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            self._lock.release()
            raise

    def _locked(self) -> bool:
        # `maestro doctor` holds the lock for an instant when it looks who has the folder; who starts together with us
        # may have it alone for as long as it changes the tables.
        for _ in range(TRIES_SHARED if self._shared else TRIES_ALONE):
            if self._lock.take(shared=self._shared):
                return True
            time.sleep(TRY_AGAIN_SECONDS)
        return False

    def _busy(self) -> str:
        try:
            holder = f"process {int(self.pid_file.read_text())}"
        except (OSError, ValueError):  # the holder is between its lock and its pid file, or there are several
            holder = "another Maestro, such as a worker or connectors of its own"
        return (
            f"The data folder {self.path} is in use by {holder}. "
            "Stop that Maestro first, or give this one a folder of its own (dataDir)."
        )

    def _unusable(self, error: OSError) -> str:
        reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "Free some space on that disk, or set" if full else "Set"
        return (
            f"The data folder {self.path} (dataDir) cannot be used: {reason}. "
            f"{fix} dataDir to a folder on a local disk that this user may create and write."
        )
