"""Notifications of PostgreSQL: a process hears of another's commit at once, and only of commits that concern it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from maestro.domain.jobs.job import JobStatus
from maestro.store.cache import StoreState
from maestro.store.engine import notifications, postgresql
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.fresh_store import path_of
from tests.support.job_rows import JobRows
from tests.support.postgresql import database_url

pytestmark = pytest.mark.postgresql_only(reason="is about notifications of the server")

LISTENERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'maestro changes' AND datname = current_database()
"""


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The store as a process on another host has it, which never looks by itself."""
    monkeypatch.setattr(postgresql, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(notifications, "RETRY_SECONDS", 0.05)
    with contextlib.closing(Store(tmp_path / "maestro.db")) as store:
        yield store


@asynccontextmanager
async def waiting(store: Store, holds: Callable[[StoreState], bool]) -> AsyncIterator[asyncio.Event]:
    """Yield the event of a loop of this process, once the process listens and has looked."""
    with store.changes.subscribe(lambda state: True, lambda: 0.01) as looked:
        await asyncio.wait_for(looked.wait(), 60)
        with store.changes.subscribe(holds, lambda: 0.01) as changed:
            yield changed


async def test_a_job_of_another_process_is_heard_of_at_once(rows: JobRows, there: Store) -> None:
    async with waiting(there, lambda state: state.unclaimed) as changed:
        await asyncio.to_thread(rows.add)
        await asyncio.wait_for(changed.wait(), 60)


async def test_a_lost_connection_comes_back_and_nothing_in_between_is_missed(rows: JobRows, there: Store) -> None:
    async with waiting(there, lambda state: state.unclaimed) as changed:
        with psycopg.connect(database_url(path_of(rows.store)), autocommit=True) as server:
            server.execute(LISTENERS)
        job_id = await asyncio.to_thread(rows.add)
        await asyncio.wait_for(changed.wait(), 60)
        with rows.store.begin() as tx:
            tx.jobs.update_job(job_id, status=JobStatus.RUNNING)
    async with waiting(there, lambda state: state.stopping) as stopping:
        with rows.store.begin() as tx:
            tx.jobs.update_job(job_id, stop_requested=True)
        await asyncio.wait_for(stopping.wait(), 60)


def heard(rows: JobRows, change: Callable[[Transaction], object]) -> int:
    """Return how many notifications a transaction sends."""
    with psycopg.connect(database_url(path_of(rows.store)), autocommit=True) as connection:
        connection.execute(f"LISTEN {notifications.CHANNEL}")
        with rows.store.begin() as tx:
            change(tx)
        connection.execute("SELECT 1")  # the server sends what it has for this connection before its answer
        return len(list(connection.notifies(timeout=0)))


def test_a_transaction_notifies_once_and_only_of_what_loops_wait_for(rows: JobRows) -> None:
    first, second = rows.add(), rows.add()
    update = rows.store.write
    for job in (first, second):
        assert heard(rows, lambda tx, job=job: tx.jobs.update_job(job, claimed_at=tx.now)) == 0  # type: ignore[misc]
    assert heard(rows, lambda tx: tx.jobs.release_claims([first, second])) == 1
    assert heard(rows, lambda tx: tx.jobs.update_job(first, status=JobStatus.RUNNING)) == 0
    assert heard(rows, lambda tx: tx.jobs.update_job(first, stop_requested=True)) == 1
    assert heard(rows, lambda tx: tx.jobs.update_job(first, status=JobStatus.COMPLETED)) == 0
    update(lambda tx: tx.jobs.update_job(second, status=JobStatus.RUNNING))
    soon = timedelta(seconds=5)
    assert heard(rows, lambda tx: tx.jobs.update_job(second, status=JobStatus.WAITING, wake_at=tx.now + soon)) == 1
    assert heard(rows, lambda tx: tx.jobs.update_job(second, status=JobStatus.PENDING, claimed_at=None)) == 1
    assert heard(rows, lambda tx: tx.jobs.update_job(second, status=JobStatus.CANCELLED)) == 1


def test_a_message_that_is_claimed_as_it_is_stored_notifies_nobody(rows: JobRows) -> None:
    def add(tx: Transaction, name: str, claimed: bool) -> None:
        tx.jobs.add_job(id=name, platform="web", account="default", channel="c", claimed_at=tx.now if claimed else None)

    assert heard(rows, lambda tx: add(tx, "claimed", claimed=True)) == 0
    assert heard(rows, lambda tx: add(tx, "unclaimed", claimed=False)) == 1


def test_changes_of_settings_and_agents_are_heard_of(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        agent = tx.agents.list_agents()[0]
    agent.name = "Grace"
    assert heard(rows, lambda tx: tx.agents.save_agent(agent)) == 1
