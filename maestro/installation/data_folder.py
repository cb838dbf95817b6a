"""The data folder: created, checked, and locked by one ``maestro up`` or shared by several processes."""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from maestro.domain.errors import ConfigurationError, DataFolderBusy
from temporal.server_process import ServerConfig, ServerRecord, read_record

LOCK = "maestro.lock"
_PID = "maestro.pid"
OWNER_ONLY = 0o077
"""The umask for files that only their owner may read, because they hold prompts, keys and messages."""
CONTENT = (
    *("maestro.db*", "temporal.db*", "temporal.json", "*.key", "*.lock", "maestro.pid"),
    *("answers", "leases", "logs", "media", "sessions", "uploads", "workspaces"),
)
"""Patterns of the files that Maestro creates in the folder; the folder may hold files of other programs too."""
EXCLUSIVE_TRIES = 4
SHARED_TRIES = 60
RETRY_SECONDS = 0.05


class FileLock:
    """A lock between the processes of one machine, also of containers that share a volume; exclusive or shared.

    It uses flock, because a lock file alone would outlive a killed process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def take(self, *, shared: bool = False, wait: bool = False) -> bool:
        """Take the lock; return false if another process holds it, or wait for it with ``wait``. Raises ``OSError``."""
        # Python opens files as close-on-exec, so child processes do not inherit the lock.
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
        """Wait for the lock and hold it exclusively during the block; raises ``OSError``."""
        self.take(wait=True)
        try:
            yield
        finally:
            self.release()

    def sign(self) -> None:
        """Write the id of this process into the lock file."""
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def holder(self) -> str:
        """Return the process that wrote its id into the lock file: ``process 123``, or ``another process``."""
        try:
            return f"process {int(self._path.read_text())}"
        except (OSError, ValueError):  # the holder has taken the lock but not yet written its process id
            return "another process"

    def release(self) -> None:
        """Release the lock, if this object holds it."""
        if self._file is not None:
            self._file.close()
            self._file = None


def close_to_others(paths: Iterable[Path]) -> None:
    """Remove the permissions of group and others from these files, and from everything in these folders."""
    for path in paths:
        with contextlib.suppress(OSError):  # the file was deleted in the meantime, or belongs to another user
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & OWNER_ONLY:
                path.chmod(stat.S_IMODE(mode) & ~OWNER_ONLY)
            if stat.S_ISDIR(mode):
                close_to_others(path.iterdir())


class DataFolder:
    """The data folder, locked as a context manager; files created meanwhile are readable by their owner only.

    A process with its own Temporal server locks the folder exclusively. Worker, API and connectors beside a cluster
    share it with each other, but not with an exclusive holder.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        """Name the folder; it is created on entry if it does not exist, readable by its owner only."""
        self.path = path.expanduser().absolute()
        self._shared = shared
        self._lock = FileLock(self.path / LOCK)
        self._mask = 0

    @property
    def pid_file(self) -> Path:
        """The file with the process id of the exclusive holder of the folder; removed by a clean exit."""
        return self.path / _PID

    def __enter__(self) -> "DataFolder":
        """Create the folder if it is missing, and lock it.

        Raises ``DataFolderBusy`` if another process holds the lock, ``ConfigurationError`` if the folder is unusable.
        """
        self._mask = os.umask(OWNER_ONLY)
        with contextlib.ExitStack() as undo:
            undo.callback(os.umask, self._mask)
            try:
                self._create_and_lock()
            except OSError as error:
                raise ConfigurationError(self._unusable_message(error)) from error
            undo.pop_all()
        close_to_others(path for pattern in CONTENT for path in self.path.glob(pattern))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shared:
            self.pid_file.unlink(missing_ok=True)
        self._lock.release()
        os.umask(self._mask)

    def _create_and_lock(self) -> None:
        if not self.path.is_dir():
            # exist_ok, because another process may create the folder at the same time.
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_with_retries()
        try:
            # A process that shares the folder writes a file too, to check that the folder is writable.
            fresh = self.pid_file.with_suffix(f".{os.getpid()}")
            fresh.write_text(f"{os.getpid()}\n")
            if self._shared:
                fresh.unlink(missing_ok=True)
                self.pid_file.unlink(missing_ok=True)  # left behind by an exclusive holder that was killed
            else:
                fresh.replace(self.pid_file)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            self._lock.release()
            raise

    def _lock_with_retries(self) -> None:
        # Several tries, because `maestro doctor` holds the lock for a moment, and a process that starts at the
        # same time holds the lock exclusively while it migrates the tables.
        for _ in range(SHARED_TRIES if self._shared else EXCLUSIVE_TRIES):
            if self._lock.take(shared=self._shared):
                return
            time.sleep(RETRY_SECONDS)
        pid = _read_pid(self.pid_file)
        # Without a pid file, the holder has just started, or several processes share the folder.
        holder = f"process {pid}" if pid is not None else "another Maestro, such as a separate worker"
        raise DataFolderBusy(
            f"The data folder {self.path} is in use by {holder}. "
            "Stop that Maestro first, or set dataDir to another folder for this one."
        )

    def _unusable_message(self, error: OSError) -> str:
        reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "Free some space on that disk, or set" if full else "Set"
        return (
            f"The data folder {self.path} (dataDir) cannot be used: {reason}. "
            f"{fix} dataDir to a folder on a local disk that this user may create and write."
        )


@dataclass(frozen=True)
class FolderHolder:
    """Whether a Maestro uses the folder, and the process id of an exclusive holder, if known."""

    running: bool = False
    shared: bool = False
    pid: int | None = None

    def __str__(self) -> str:
        if self.shared:
            return "separate processes of Maestro"
        return f"a running Maestro (process {self.pid})" if self.pid else "a running Maestro"


def holder_of(folder: Path) -> FolderHolder:
    """Return which process holds the data folder.

    Each lock is tried and released at once. The exclusive lock is tried last, because a process that starts in that
    moment would find the folder locked.
    """
    data = DataFolder(folder)
    try:
        lock = os.open(data.path / LOCK, os.O_RDONLY)
    except OSError:
        return FolderHolder()
    try:
        if not _can_lock(lock, fcntl.LOCK_SH):
            return FolderHolder(running=True, pid=_read_pid(data.pid_file))
        return FolderHolder() if _can_lock(lock, fcntl.LOCK_EX) else FolderHolder(running=True, shared=True)
    finally:
        os.close(lock)


def server_of(folder: Path) -> ServerRecord | None:
    """Return the embedded Temporal server of the data folder, None if it does not run."""
    try:
        record = read_record(ServerConfig(folder, port=0, ui_port=1).record)
    except OSError:  # `check_data_folder` of `maestro doctor` reports an unreadable folder
        return None
    return record if record is not None and record.exists() else None


def _can_lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # `check_data_folder` of `maestro doctor` reports a file system without locks
        return True
    return True


def _read_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):  # the holder has taken the lock but not yet written its process id
        return None
