"""The data folder: created, checked, and locked by one ``maestro up``, or shared by several processes."""

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
"""The umask of files that only their owner may read, because they hold prompts, keys and messages."""
CONTENT = (
    *("maestro.db*", "temporal.db*", "temporal.json", "*.key", "*.lock", "maestro.pid"),
    *("answers", "leases", "logs", "media", "sessions", "uploads", "workspaces"),
)
"""The files that Maestro creates in the folder, which may hold files of others too."""
TRIES_ALONE = 4
TRIES_SHARED = 60
RETRY_SECONDS = 0.05


class FileLock:
    """A lock between processes on one machine, including containers on one volume; held alone or shared.

    It uses flock, because a mere lock file would outlive a killed process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def take(self, *, shared: bool = False, wait: bool = False) -> bool:
        """Take the lock; false when another process has it, unless ``wait``. Raises ``OSError``."""
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
        """Hold the lock alone for the length of the block, after waiting for it; raises ``OSError``."""
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
        """Return the process that signed the lock: ``process 123``, or ``another process``."""
        try:
            return f"process {int(self._path.read_text())}"
        except (OSError, ValueError):  # the holder has locked the file but not yet written its id
            return "another process"

    def release(self) -> None:
        """Release the lock; harmless when it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None


def close_to_others(paths: Iterable[Path]) -> None:
    """Remove the permissions of group and others from these files, and from everything in these folders."""
    for path in paths:
        with contextlib.suppress(OSError):  # deleted in the meantime, or owned by another user
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & OWNER_ONLY:
                path.chmod(stat.S_IMODE(mode) & ~OWNER_ONLY)
            if stat.S_ISDIR(mode):
                close_to_others(path.iterdir())


class DataFolder:
    """The data folder; as a context manager it is locked, and new files are readable by their owner only.

    A process with its own Temporal server holds the folder alone. Worker, API and connectors beside a cluster share
    it with each other, but not with a process that holds it alone.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        """``path`` is created on entry if it does not exist, readable by its owner only."""
        self.path = path.expanduser().absolute()
        self._shared = shared
        self._lock = FileLock(self.path / LOCK)
        self._mask = 0

    @property
    def pid_file(self) -> Path:
        """The file with the id of the process that holds the folder alone; removed by a clean exit."""
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
        """Release the folder."""
        if not self._shared:
            self.pid_file.unlink(missing_ok=True)
        self._lock.release()
        os.umask(self._mask)

    def _take(self) -> None:
        if not self.path.is_dir():
            # Another process may create it at the same time.
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        try:
            # Processes that share the folder write a file too, as a check that the folder is writable.
            fresh = self.pid_file.with_suffix(f".{os.getpid()}")
            fresh.write_text(f"{os.getpid()}\n")
            if self._shared:
                fresh.unlink(missing_ok=True)
                self.pid_file.unlink(missing_ok=True)  # the file of an exclusive holder that was killed
            else:
                fresh.replace(self.pid_file)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            self._lock.release()
            raise

    def _take_lock(self) -> None:
        # Retried, because `maestro doctor` holds the lock for a moment, and a process that starts at the same
        # time holds it alone while it migrates the tables.
        for _ in range(TRIES_SHARED if self._shared else TRIES_ALONE):
            if self._lock.take(shared=self._shared):
                return
            time.sleep(RETRY_SECONDS)
        pid = _signed_process(self.pid_file)
        # Without a pid file, the holder has only just begun, or there are several.
        holder = f"process {pid}" if pid is not None else "another Maestro, such as a worker or connectors of its own"
        raise DataFolderBusy(
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


@dataclass(frozen=True)
class FolderHolder:
    """Whether a Maestro uses the folder, and the id of its process, if it holds the folder alone and wrote its id."""

    running: bool = False
    shared: bool = False
    pid: int | None = None

    def __str__(self) -> str:
        if self.shared:
            return "separate processes of Maestro"
        return f"a running Maestro (process {self.pid})" if self.pid else "a running Maestro"


def holder_of(folder: Path) -> FolderHolder:
    """Return the process that holds the folder.

    Each lock is tried and released at once. The exclusive lock is tried last, because a process that starts in that
    moment would find the folder locked.
    """
    data = DataFolder(folder)
    try:
        lock = os.open(data.path / LOCK, os.O_RDONLY)
    except OSError:
        return FolderHolder()
    try:
        if not _free(lock, fcntl.LOCK_SH):
            return FolderHolder(running=True, pid=_signed_process(data.pid_file))
        return FolderHolder() if _free(lock, fcntl.LOCK_EX) else FolderHolder(running=True, shared=True)
    finally:
        os.close(lock)


def server_of(folder: Path) -> ServerRecord | None:
    """Return the embedded Temporal server of the folder, if it runs."""
    try:
        record = read_record(ServerConfig(folder, port=0, ui_port=1).record)
    except OSError:  # the check of the data folder reports it
        return None
    return record if record is not None and record.exists() else None


def _free(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, which another check reports
        return True
    return True


def _signed_process(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):  # the holder has locked the file but not yet written its id
        return None
