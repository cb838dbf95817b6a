"""Sees that something was committed, without looking at what."""

import sqlite3
from pathlib import Path
from threading import Lock

BUSY_SECONDS = 5.0


class Sentinel:
    """A connection that changes nothing, so that each change it hears of is that of another one.

    SQLite keeps a number for each connection that moves with the commits of all others, those of other processes too:
    to ask for it takes microseconds, where the cheapest look at a table takes a hundred.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None

    def mark(self) -> str:
        """Return the number as a word."""
        with self._lock:
            if self._connection is None:
                self._connection = self._opened()
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return str(version)

    def close(self) -> None:
        """Close the connection; the next question would open another one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _opened(self) -> sqlite3.Connection:
        address = f"{self._path.absolute().as_uri()}?mode=rw"
        opened = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None)
        opened.execute("PRAGMA query_only=ON")
        return opened
