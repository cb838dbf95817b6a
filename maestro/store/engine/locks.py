"""Leases as locks of a PostgreSQL session, which the server takes from a process that it does not hear of (ADR 42)."""

import hashlib
import os
import platform
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread

import psycopg
import structlog
from sqlalchemy import make_url

from maestro.domain.errors import DataFolderBusy, StoreBusy, StoreUnreadable
from maestro.store.engine.database import name_of

LEASE_SECONDS = 15.0
"""Seconds of silence after which the server ends the session of a process, and with it the locks of the process.

A process that is paused, or cut off from the server, is silent; its connection alone would keep the locks for hours.
"""
HEARTBEAT_SECONDS = 2.0
MARGIN_SECONDS = 5.0
"""Seconds before the end of a lease from which its holder acts as if it had lost it, because a send takes some time."""
CONNECT_SECONDS = 5
WAIT_SECONDS = 3.0
"""The longest wait for a row that another transaction holds; shorter than the margin, because no heartbeat is sent."""
PAUSE_SECONDS = 0.2
LONGEST_START = 600
"""Seconds after which the server frees the lock of a process that is paused while it starts."""
ALONE = "store"
"""The lock that processes of a cluster share, and that a process with an embedded Temporal server takes alone."""

_RAISE_NUMBER = """
INSERT INTO leases (name, number, holder, taken_at)
VALUES (%s, 1, %s, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
ON CONFLICT (name) DO UPDATE
SET number = leases.number + 1, holder = excluded.holder, taken_at = excluded.taken_at
RETURNING number
"""
_END_EARLIER = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %s AND datname = current_database() AND pid <> pg_backend_pid()
"""
_LOCKED = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

log = structlog.get_logger(__name__)


def seconds_since_boot() -> float:
    """Return a clock that also counts the time for which the machine slept, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def lock_key(name: str) -> int:
    """Return the number by which the server knows the lock of this name."""
    return int.from_bytes(hashlib.sha256(f"maestro {name}".encode()).digest()[:8], signed=True)


def driver_url(url: str) -> str:
    """Return the URL of a database as the driver reads it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


class LockSession:
    """One session at the server, which holds locks until it is closed, or silent for ``LEASE_SECONDS``."""

    def __init__(self, url: str, application: str) -> None:
        # The server counts from the end of its last answer, so a lease counted from before the question ends earlier.
        self._heard_at = seconds_since_boot()
        self._connection = psycopg.connect(
            driver_url(url),
            autocommit=True,
            application_name=application,
            connect_timeout=CONNECT_SECONDS,
            options=f"-c idle_session_timeout={LEASE_SECONDS * 1000:.0f} -c lock_timeout={WAIT_SECONDS * 1000:.0f}",
            tcp_user_timeout=round(LEASE_SECONDS * 1000),
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
        )

    @property
    def is_alive(self) -> bool:
        """Whether the server certainly still has the locks of this session."""
        heard_lately = seconds_since_boot() - self._heard_at < LEASE_SECONDS - MARGIN_SECONDS
        return heard_lately and not self._connection.closed

    def send_heartbeat(self) -> None:
        """Ask the server for an answer, which proves that it still has the session; raises ``psycopg.Error``."""
        asked_at = seconds_since_boot()
        self._connection.execute("SELECT 1")
        self._heard_at = asked_at

    def end_earlier(self, application: str) -> None:
        """End an earlier session of this process, which the server may not know to be lost."""
        self._connection.execute(_END_EARLIER, (application,))

    def try_lock(self, name: str, *, shared: bool = False) -> bool:
        """Take a lock; return false if another session holds it."""
        function = "pg_try_advisory_lock_shared" if shared else "pg_try_advisory_lock"
        row = self._connection.execute(f"SELECT {function}(%s)", (lock_key(name),)).fetchone()
        return bool(row and row[0])

    def unlock(self, name: str) -> None:
        """Release a lock of this session."""
        self._connection.execute("SELECT pg_advisory_unlock(%s)", (lock_key(name),))

    def raise_number(self, name: str, holder: str) -> int:
        """Raise the fencing number of a lease and return it, after the transactions that checked the old one."""
        row = self._connection.execute(_RAISE_NUMBER, (name, holder)).fetchone()
        assert row is not None
        return int(row[0])

    def find_holder(self, name: str) -> str:
        """Return the text that the newest holder of a lease recorded; empty without one."""
        row = self._connection.execute("SELECT holder FROM leases WHERE name = %s", (name,)).fetchone()
        return str(row[0]) if row else ""

    def list_locked(self) -> frozenset[int]:
        """Return the keys of all locks that any session holds in this database."""
        return frozenset(int(row[0]) for row in self._connection.execute(_LOCKED).fetchall())

    def close(self) -> None:
        """End the session, which releases its locks."""
        self._connection.close()


class SessionLeases:
    """The leases of this process, all on one session, which a thread keeps alive, and replaces after it was lost.

    The process itself holds two locks: one that tells others that it lives, and ``ALONE``.
    """

    def __init__(self, url: str, owner: str, *, shared: bool) -> None:
        """Open the session; ``shared`` is whether other processes may use the store.

        Raises ``StoreUnreadable`` without a usable server, and ``DataFolderBusy`` if another process uses the store.
        """
        self.owner = owner
        self._url = url
        self._application = f"maestro {owner}"
        self._own = ((f"process-{owner}", False), (ALONE, shared))
        self._missing: Sequence[tuple[str, bool]] = ()
        self._missing_since = 0.0
        self._reserved: set[str] = set()
        self._lock = Lock()
        self._closing = Event()
        self._session: LockSession | None = None
        try:
            self._wait_for_store()
        except psycopg.Error as error:
            raise StoreUnreadable(
                f"the locks of the database {name_of(url)} cannot be used: {str(error).strip()}. Check store.url: it "
                "must name PostgreSQL 14 or later, and not a pooler that lets clients share sessions."
            ) from None
        self._thread = Thread(target=self._keep_alive, name="leases", daemon=True)
        self._thread.start()

    def lease(self, name: str) -> "SessionLease":
        """Return the lease of this name, not yet taken."""
        return SessionLease(name, self)

    def find_gone(self, owners: Collection[str]) -> frozenset[str]:
        """Return those of these owners whose process has ended, or was not heard of for some time."""
        try:
            locked = self.session.list_locked()
        except psycopg.Error as error:
            raise StoreBusy(f"the database server did not say which processes live: {str(error).strip()}") from None
        return frozenset(owner for owner in owners if lock_key(f"process-{owner}") not in locked) - {self.owner}

    def find_problem(self) -> str:
        """Return why this process must end: another one took ``ALONE`` while the session of this one was lost."""
        # Without a session nobody is known to have it: then the server is away, and may come back.
        since = self._missing_since if self._session is not None else 0.0
        return self._in_use if since and seconds_since_boot() - since > 2 * LEASE_SECONDS else ""

    def close(self) -> None:
        """End the session, and with it all locks of this process."""
        self._closing.set()
        session, self._session = self._session, None
        if session is not None:
            session.close()
        self._thread.join(HEARTBEAT_SECONDS)

    @property
    def session(self) -> LockSession:
        """The present session; raises ``StoreBusy`` while the server does not answer."""
        session = self._session
        if session is None or not session.is_alive:
            raise StoreBusy(f"the database server {name_of(self._url)} does not answer, so no lease can be taken")
        return session

    def reserve(self, name: str) -> bool:
        """Let one part of this process use a lock, because the server would give a session the same lock twice."""
        with self._lock:
            is_free = name not in self._reserved
            self._reserved.add(name)
            return is_free

    def give_back(self, name: str) -> None:
        """Undo ``reserve``."""
        with self._lock:
            self._reserved.discard(name)

    @property
    def _in_use(self) -> str:
        return (
            f"the database {name_of(self._url)} is in use by another Maestro. A Maestro with an embedded Temporal "
            "server needs a database for itself: stop the other one, or let all hosts use one Temporal server "
            "(temporal.address)."
        )

    def _wait_for_store(self) -> None:
        """Open the first session, and wait a moment for a process that is just ending."""
        until = seconds_since_boot() + WAIT_SECONDS
        session = self._begin_session()
        while self._missing:
            if seconds_since_boot() > until:
                session.close()
                raise DataFolderBusy(self._in_use)
            time.sleep(PAUSE_SECONDS)
            self._take_missing(session)

    def _begin_session(self) -> LockSession:
        session = LockSession(self._url, self._application)
        try:
            session.end_earlier(self._application)
            self._missing, self._missing_since = self._own, seconds_since_boot()
            self._take_missing(session)
        except psycopg.Error:
            session.close()
            raise
        self._session = session
        return session

    def _take_missing(self, session: LockSession) -> None:
        if self._missing:
            self._missing = [
                (name, shared) for name, shared in self._missing if not session.try_lock(name, shared=shared)
            ]
            self._missing_since = self._missing_since if self._missing else 0.0

    def _keep_alive(self) -> None:
        """Send heartbeats, and replace a lost session, until ``close``."""
        while not self._closing.wait(HEARTBEAT_SECONDS):
            session = self._session
            try:
                if session is None:
                    self._begin_session()
                    log.info("leases.session_replaced")
                else:
                    session.send_heartbeat()
                    self._take_missing(session)
            except Exception as error:  # noqa: BLE001 - without heartbeats the process would lose all leases for good
                self._drop_session(error)

    def _drop_session(self, error: Exception) -> None:
        if not self._closing.is_set():
            log.warning("leases.session_lost", reason=str(error).strip())
        session, self._session = self._session, None
        if session is not None:
            session.close()


class SessionLease:
    """The right of this name, as a lock of the session of this process; ``number`` is its fencing number."""

    def __init__(self, name: str, leases: SessionLeases) -> None:
        self.name = name
        self.number = 0
        self._leases = leases
        self._session: LockSession | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process certainly holds the lease; it ends with its session, even if another one replaces it."""
        session = self._session
        return session is not None and session.is_alive

    def take(self) -> bool:
        """Take the lease; return false if another process holds it. Raises ``StoreBusy``."""
        if not self._leases.reserve(self.name):
            return False
        session, is_locked = None, False
        try:
            session = self._leases.session
            is_locked = session.try_lock(self.name)
            if is_locked:
                self.number = session.raise_number(self.name, f"process {os.getpid()} on {platform.node()}")
                self._session = session
        except psycopg.Error as error:
            if session is not None and is_locked:
                with suppress(psycopg.Error):
                    session.unlock(self.name)
            raise StoreBusy(f"the lease {self.name} could not be taken: {str(error).strip()}") from None
        finally:
            if self._session is None:
                self._leases.give_back(self.name)
        return is_locked

    def describe_holder(self) -> str:
        """Return the process and the host that took the lease last."""
        try:
            return self._leases.session.find_holder(self.name) or "another process"
        except (psycopg.Error, StoreBusy):
            return "another process"

    def release(self) -> None:
        """Release the lease, if this object holds it."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(psycopg.Error):
                session.unlock(self.name)
            self._leases.give_back(self.name)


@contextmanager
def hold_lock(url: str, name: str) -> Iterator[None]:
    """Wait for a lock and hold it during the block, so that processes on all hosts do the block one after the other."""
    try:
        with psycopg.connect(driver_url(url), autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
            connection.execute(f"SET idle_session_timeout = {LONGEST_START * 1000}")
            connection.execute("SELECT pg_advisory_lock(%s)", (lock_key(name),))
            yield
    except psycopg.Error as error:
        raise StoreUnreadable(
            f"the database {name_of(url)} cannot be opened: {str(error).strip()}. Check store.url, and that the "
            "server runs."
        ) from None
