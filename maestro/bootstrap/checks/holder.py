"""Who has the data folder now, looked up without taking it from anybody."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from maestro.bootstrap.data_folder import LOCK, DataFolder
from temporal.server_process import ServerConfig, ServerRecord, read_record


@dataclass(frozen=True)
class Holder:
    """Whether a Maestro runs on the folder, and its process id where one has it alone and has said so."""

    running: bool = False
    shared: bool = False
    pid: int | None = None

    def __str__(self) -> str:
        if self.shared:
            return "separate processes of Maestro"
        return f"a running Maestro (process {self.pid})" if self.pid else "a running Maestro"


def holder_of(folder: Path) -> Holder:
    """Return who has the folder.

    It is asked for by a lock that is given back at once. Who starts in that very moment would find the folder taken,
    so the stronger of the two locks is asked for only where the weaker one tells too little.
    """
    data = DataFolder(folder)
    try:
        lock = os.open(data.path / LOCK, os.O_RDONLY)
    except OSError:
        return Holder()
    try:
        if not _free(lock, fcntl.LOCK_SH):
            return Holder(running=True, pid=_signed(data.pid_file))
        return Holder() if _free(lock, fcntl.LOCK_EX) else Holder(running=True, shared=True)
    finally:
        os.close(lock)


def server_of(folder: Path) -> ServerRecord | None:
    """Return the embedded Temporal server that was started on the folder, if it lives."""
    try:
        record = read_record(ServerConfig(folder, port=0, ui_port=1).record)
    except OSError:  # a folder that cannot be read is told by its own check
        return None
    return record if record is not None and record.exists() else None


def _free(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks; another check says so
        return True
    return True


def _signed(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):  # it is between its lock and its signature
        return None
