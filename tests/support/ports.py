"""Ports for what a test starts: no two tests, on any worker of pytest or in any run beside it, get the same one."""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

PORTS = range(10_100, 32_000)
"""Above the last port that browsers refuse to open, below the range from which the system serves others."""
_chance = random.Random()
_given: set[int] = set()


def free_port() -> int:
    """Return a port on which nothing listens, and that stays ours as long as this process lives.

    Until the test listens there, and while what listened there is started again, the port is free for the system;
    so a lock on one byte of a common file, which the system frees when the process ends, says that it is taken.
    """
    for _ in range(10 * len(PORTS)):
        port = _chance.choice(PORTS)
        if port not in _given and _locked(port) and _free(port):
            _given.add(port)
            return port
    raise RuntimeError(f"no free port from {PORTS.start} to {PORTS.stop - 1}: {len(_given)} were given to this process")


def free_ports(count: int) -> list[int]:
    """Return as many different free ports."""
    return [free_port() for _ in range(count)]


def _locked(port: int) -> bool:
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


@cache
def _locks() -> int:
    # Opened once and never closed: the first close of the file would free every lock of the process.
    name = Path(tempfile.gettempdir()) / f"maestro-test-ports-{os.getuid()}"
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
