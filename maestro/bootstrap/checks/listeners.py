"""Which process listens on a port of this machine, as far as the system tells us."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TABLES = ("net/tcp", "net/tcp6")
LISTENING = "0A"


@dataclass(frozen=True)
class Listener:
    """A process and the name of its program."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def listener(port: int) -> Listener | None:
    """Return who listens on the port; None when nobody does, it is somebody else's secret, or there is no /proc."""
    sockets = {f"socket:[{inode}]" for table in TABLES for inode in _inodes(PROC / table, port)}
    if not sockets:
        return None
    for process in PROC.glob("[0-9]*"):
        if any(target in sockets for target in _open_files(process)):
            return Listener(int(process.name), _name(process))
    return None


def _inodes(table: Path, port: int) -> Iterator[str]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for fields in (line.split() for line in lines):
        if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _open_files(process: Path) -> Iterator[str]:
    try:
        for file in os.scandir(process / "fd"):
            yield os.readlink(file.path)
    except OSError:  # not ours to see, or it has just ended
        return


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip() or "a program"
    except OSError:
        return "a program"
