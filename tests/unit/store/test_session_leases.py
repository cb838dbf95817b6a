"""Leases at the PostgreSQL server: a process that is paused loses them, and sends nothing when it goes on."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from maestro.domain.errors import DataFolderBusy, LeaseLost, StoreUnreadable
from maestro.domain.messages import Address
from maestro.store.engine import locks
from maestro.store.engine.locks import SessionLeases
from maestro.store.store import Store
from tests.support import postgresql

pytestmark = pytest.mark.postgresql_only(reason="is about locks at the server")

ROOT = Path(__file__).parents[3]
HERE = Address(platform="slack", account="main", channel="C1")
HOLDER = """
import sys
from maestro.store.engine import locks

locks.LEASE_SECONDS, locks.MARGIN_SECONDS, locks.HEARTBEAT_SECONDS = 2.0, 1.0, 0.2
leases = locks.SessionLeases(sys.argv[1], "holder", shared=True)
lease = leases.lease("slack-main")
print(lease.take(), flush=True)
for _ in sys.stdin:
    print(lease.is_held, flush=True)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return postgresql.database_url(tmp_path / "maestro.db")


@pytest.fixture
def here(url: str) -> Iterator[SessionLeases]:
    with contextlib.closing(SessionLeases(url, "here", shared=True)) as leases:
        yield leases


@pytest.fixture
def there(url: str) -> Iterator[SessionLeases]:
    with contextlib.closing(SessionLeases(url, "there", shared=True)) as leases:
        yield leases


def end_session(url: str, owner: str) -> None:
    """End the session of a process at the server, as a server that restarts does."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s",
            (f"maestro {owner}",),
        )


def wait_until(condition: object) -> None:
    assert callable(condition)
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_one_process_holds_a_lease_and_the_next_gets_a_higher_number(here: SessionLeases, there: SessionLeases) -> None:
    first, second = here.lease("slack-main"), there.lease("slack-main")
    assert first.take()
    assert (first.is_held, first.number) == (True, 1)
    assert not second.take()
    assert second.describe_holder().startswith("process ")
    assert there.lease("slack-other").take(), "other leases are free"
    first.release()
    assert second.take()
    assert (first.is_held, second.is_held, second.number) == (False, True, 2)


def test_two_parts_of_one_process_do_not_share_a_lease(here: SessionLeases) -> None:
    first, second = here.lease("token-digest"), here.lease("token-digest")
    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()


def test_the_server_takes_the_lease_from_a_paused_process_which_knows_it_when_it_goes_on(
    url: str, here: SessionLeases
) -> None:
    command = [sys.executable, "-c", HOLDER, url]
    holder = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    lease = here.lease("slack-main")
    assert not lease.take()
    holder.send_signal(signal.SIGSTOP)
    wait_until(lease.take)
    assert lease.number == 2
    holder.send_signal(signal.SIGCONT)
    holder.stdin.write("held?\n")
    holder.stdin.flush()
    # It also logs that it lost its session.
    assert next(line for line in holder.stdout if line in ("True\n", "False\n")) == "False\n"
    holder.kill()
    holder.communicate()


def test_a_holder_without_an_answer_of_the_server_stops_before_the_server_frees_its_lease(
    here: SessionLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = here.lease("slack-main")
    assert lease.take()
    now = locks.seconds_since_boot()
    monkeypatch.setattr(locks, "seconds_since_boot", lambda: now + locks.LEASE_SECONDS - locks.MARGIN_SECONDS)
    assert not lease.is_held


def test_a_transaction_of_an_earlier_holder_marks_nothing_as_being_sent(
    tmp_path: Path, here: SessionLeases, there: SessionLeases
) -> None:
    first, second = here.lease("slack-main"), there.lease("slack-main")
    assert first.take()
    with contextlib.closing(Store(tmp_path / "maestro.db")) as store:
        store.fences["slack", "main"] = first
        with store.begin() as tx:
            tx.deliveries.require_lease(HERE)
        with psycopg.connect(postgresql.database_url(tmp_path / "maestro.db")) as connection:
            connection.execute("UPDATE leases SET number = number + 1")
        # Its clock says that it holds the lease, as that of a machine may whose clock went too slowly.
        assert first.is_held
        with pytest.raises(LeaseLost), store.begin() as tx:
            tx.deliveries.require_lease(HERE)
        first.release()
        assert second.take()
        assert second.number == 3
        with pytest.raises(LeaseLost), store.begin() as tx:
            tx.deliveries.require_lease(HERE)


def test_a_taker_waits_for_the_transaction_that_checked_the_number(
    tmp_path: Path, here: SessionLeases, there: SessionLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = here.lease("slack-main"), there.lease("slack-main")
    assert first.take()
    with contextlib.closing(Store(tmp_path / "maestro.db")) as store:
        store.fences["slack", "main"] = first
        with store.begin() as tx:
            tx.deliveries.require_lease(HERE)
            first.release()
            with pytest.raises(Exception, match="lock timeout"):
                second.take()
        assert second.take()


def test_a_lost_session_is_replaced_but_its_leases_stay_lost(
    url: str, here: SessionLeases, there: SessionLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.05)
    lease = here.lease("slack-main")
    assert lease.take()
    assert there.find_gone(["here", "gone"]) == {"gone"}
    end_session(url, "here")
    wait_until(lambda: not lease.is_held)
    assert there.lease("slack-main").take()
    wait_until(lambda: there.find_gone(["here"]) == frozenset())
    assert not lease.is_held
    assert not here.lease("slack-main").take()


def test_a_process_with_a_temporal_server_of_its_own_has_the_store_alone(url: str, here: SessionLeases) -> None:
    with pytest.raises(DataFolderBusy, match="needs a database for itself"):
        SessionLeases(url, "alone", shared=False)
    here.close()
    alone = SessionLeases(url, "alone", shared=False)
    with pytest.raises(DataFolderBusy, match="in use by another Maestro"):
        SessionLeases(url, "second", shared=True)
    alone.close()


def test_a_server_that_is_away_is_no_reason_to_end(
    url: str, here: SessionLeases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away again while a process takes its locks back: nobody else has them."""

    def refuse(*_: object) -> None:
        raise psycopg.OperationalError("there is no server")

    def lose(*_: object, **__: object) -> bool:
        monkeypatch.setattr(locks.LockSession, "__init__", refuse)
        raise psycopg.OperationalError("the server is shutting down")

    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.1)
    monkeypatch.setattr(locks.LockSession, "try_lock", lose)
    end_session(url, "here")
    wait_until(lambda: here._session is None and here._missing_since)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert here.find_problem() == ""
        time.sleep(0.01)


def test_a_server_that_cannot_be_reached_is_named_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match=r"store\.url"):
        SessionLeases(f"postgresql://maestro@/none?host={tmp_path}", "here", shared=True)


def test_processes_that_start_together_begin_one_after_the_other(url: str) -> None:
    with locks.hold_lock(url, "start"), psycopg.connect(url, autocommit=True) as other:
        row = other.execute("SELECT pg_try_advisory_lock(%s)", (locks.lock_key("start"),)).fetchone()
        assert row == (False,)
