"""The data folder: made, checked, and owned by one process at a time."""

import os
from pathlib import Path
from types import TracebackType

from filelock import Timeout, UnixFileLock

from maestro.domain.errors import ConfigurationError, DataFolderBusy

_LOCK = "maestro.lock"
_PID = "maestro.pid"


class DataFolder:
    """The folder for everything this process keeps; as a context manager it is ours alone.

    The lock belongs to the operating system (flock), so a kill frees it at once and no stale lock can remain.
    """

    def __init__(self, path: Path) -> None:
        """``path`` is created on entry if it does not exist, readable by its owner only."""
        self.path = path.expanduser().absolute()
        # A lock that is only a file would outlive a kill, so a file system without flock is refused instead.
        self._lock = UnixFileLock(self.path / _LOCK, timeout=0, fallback_to_soft=False, thread_local=False)

    @property
    def pid_file(self) -> Path:
        """Holds the process id of the owner; gone after a clean exit."""
        return self.path / _PID

    def __enter__(self) -> "DataFolder":
        """Take the folder.

        Raises DataFolderBusy when another process has it, ConfigurationError when it cannot be created or written.
        """
        try:
            self._take()
        except Timeout as error:
            raise DataFolderBusy(self._busy()) from error
        except OSError as error:
            raise ConfigurationError(self._unusable(error)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the folder back."""
        self.pid_file.unlink(missing_ok=True)
        self._lock.release()

    def _take(self) -> None:
        if not self.path.is_dir():
            self.path.mkdir(mode=0o700, parents=True)
        self._lock.acquire()
        try:
            fresh = self.pid_file.with_suffix(".new")
            fresh.write_text(f"{os.getpid()}\n")
            fresh.replace(self.pid_file)
        except OSError:
            self._lock.release()
            raise

    def _busy(self) -> str:
        try:
            holder = f"process {int(self.pid_file.read_text())}"
        except (OSError, ValueError):  # the holder is between its lock and its pid file
            holder = "another process"
        return (
            f"The data folder {self.path} is in use by {holder}. "
            "Stop that Maestro first, or give this one a folder of its own (dataDir)."
        )

    def _unusable(self, error: OSError) -> str:
        reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
        return (
            f"The data folder {self.path} (dataDir) cannot be used: {reason}. "
            "Set dataDir to a folder on a local disk that this user may create and write."
        )
