"""Notifications of PostgreSQL: a process hears at once of a commit that changed what its loops wait for (ADR 40)."""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread

import psycopg
import structlog
from psycopg.rows import TupleRow

from maestro.store.engine.locks import CONNECT_SECONDS, driver_url

CHANNEL = "maestro_changes"
"""The channel that the triggers of the migration name; a notification has no content."""
CHECK_SECONDS = 5.0
"""Seconds without a notification after which the connection is tested."""
RETRY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class ChangeListener:
    """A thread with a connection of its own, which calls ``heard`` for each notification; lost connections return.

    After each connection ``heard`` is called as well, because no notification waits for a process that is away.
    """

    def __init__(self, url: str, heard: Callable[[], None]) -> None:
        self._url = url
        self._heard = heard
        self._closing = Event()
        self._lock = Lock()
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._thread = Thread(target=self._listen_until_closed, name="changes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and its connection."""
        self._closing.set()
        with self._lock, suppress(OSError):
            if self._connection is not None and not self._connection.closed:
                # The thread waits for the socket, and nothing else wakes it; its connection then counts as lost.
                with socket.socket(fileno=os.dup(self._connection.fileno())) as waiting:
                    waiting.shutdown(socket.SHUT_RDWR)
        self._thread.join(CHECK_SECONDS)

    def _listen_until_closed(self) -> None:
        is_away = False
        while not self._closing.is_set():
            try:
                self._listen()
                is_away = False
            except psycopg.Error as error:
                if not is_away and not self._closing.is_set():
                    log.warning("changes.listener_lost", reason=str(error).strip())
                is_away = True
                self._closing.wait(RETRY_SECONDS)

    def _listen(self) -> None:
        with self._connect() as connection:
            with self._lock:
                self._connection = connection
            connection.execute(f"LISTEN {CHANNEL}")
            self._heard()
            while not self._closing.is_set():
                for _ in connection.notifies(timeout=CHECK_SECONDS):
                    self._heard()
                connection.execute("SELECT 1")

    def _connect(self) -> psycopg.Connection[TupleRow]:
        return psycopg.connect(
            driver_url(self._url),
            autocommit=True,
            application_name="maestro changes",
            connect_timeout=CONNECT_SECONDS,
            tcp_user_timeout=round(CHECK_SECONDS * 2000),
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
        )
