"""The one look of a process for all of its loops, counted exactly."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.jobs.batches import BatchAction, ReplayBatch
from maestro.domain.jobs.job import JobStatus
from maestro.store.cache import ChangeWatcher, StoreState
from maestro.store.jobs.claims import CLAIM_LAPSES
from tests.support.job_rows import JobRows

SOON = 0.01
"""Seconds until a change is seen at the latest."""


class Watch:
    """A watcher over a store that counts its read transactions."""

    def __init__(self, rows: JobRows) -> None:
        self.rows = rows
        self.reads = 0
        self.watcher = ChangeWatcher(rows.store.mark, self._read, rows.clock)

    def _read(self, watched: Collection[str]) -> StoreState:
        self.reads += 1
        with self.rows.store.view() as tx:
            return tx.system.states.read_state(watched)

    @property
    def state(self) -> StoreState:
        """What the last look found."""
        assert self.watcher.state is not None
        return self.watcher.state

    async def settle(self) -> int:
        """Look twice, as time goes on, and return how many reads that took."""
        before = self.reads
        for _ in range(2):
            await self.watcher.notify_of_changes(at_once=False)
        return self.reads - before


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    rows = JobRows.at(tmp_path)
    yield Watch(rows)
    rows.store.close()


@asynccontextmanager
async def subscribed(watch: Watch) -> AsyncIterator[asyncio.Event]:
    with watch.watcher.subscribe(lambda state: state.unclaimed, lambda: SOON) as changed:
        yield changed


OTHERS = pytest.mark.sqlite_only(reason="the mark of PostgreSQL moves with each commit on the server, of any database")


@OTHERS
async def test_an_idle_process_reads_nothing(watch: Watch) -> None:
    await watch.settle()
    before = watch.reads
    for _ in range(100):
        await watch.watcher.notify_of_changes(at_once=False)
    await watch.watcher.notify_of_changes()
    assert watch.reads == before


@OTHERS
async def test_the_commits_of_one_message_are_seen_by_one_look(watch: Watch) -> None:
    await watch.settle()
    job_id = watch.rows.add()
    assert await read_by_next_tick(watch) == 0, "the first sign of a change is only noticed"
    watch.rows.end(job_id, JobStatus.COMPLETED)
    assert await watch.settle() == 1
    assert await watch.settle() == 0


async def read_by_next_tick(watch: Watch) -> int:
    before = watch.reads
    await watch.watcher.notify_of_changes(at_once=False)
    return watch.reads - before


async def test_one_look_answers_for_every_loop(watch: Watch) -> None:
    await watch.settle()
    quiet = watch.state
    rows = watch.rows
    stopped, watched = rows.add(), rows.add()
    with rows.store.begin() as tx:
        tx.system.settings.add_version({}, "somebody")
        tx.jobs.update_job(stopped, status=JobStatus.RUNNING, stop_requested=True)
        tx.jobs.batches.add_batch(
            ReplayBatch(id="b", action=BatchAction.CANCEL, actor="somebody", created_at=tx.now, total=0), ()
        )
    watch.watcher.watch_job(stopped)
    watch.watcher.watch_job(watched)
    assert await watch.settle() == 1
    assert (quiet.settings, quiet.batches, quiet.stopping, quiet.unclaimed) == (0, False, False, False)
    now = watch.state
    assert (now.settings, now.batches, now.stopping, now.unclaimed, now.unwanted) == (
        *(1, True, True, True),
        frozenset({stopped}),
    )
    watch.watcher.forget_job(stopped)
    watch.watcher.watch_job(stopped)
    assert watch.state.unwanted == frozenset(), "a job that was resumed is not stopped again by an older look"


@OTHERS
async def test_what_comes_due_is_seen_though_nothing_was_committed(watch: Watch) -> None:
    rows, wakes = watch.rows, timedelta(seconds=5)
    waiting, claimed = rows.add(), rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(waiting, status=JobStatus.WAITING, waits_since=tx.now, wake_at=tx.now + wakes)
        tx.jobs.update_job(claimed, claimed_at=tx.now)
    await watch.settle()
    assert (watch.state.due, watch.state.unclaimed) == (False, False)
    assert await watch.settle() == 0
    rows.clock.now += wakes
    assert await watch.settle() == 1
    assert (watch.state.due, watch.state.unclaimed) == (True, False)
    assert await watch.settle() == 0, "what is due already is not due anew"
    rows.clock.now += CLAIM_LAPSES
    assert await watch.settle() == 1
    assert watch.state.unclaimed


async def test_those_who_wait_are_told_and_the_others_are_not(watch: Watch) -> None:
    async with subscribed(watch) as unclaimed:
        with watch.watcher.subscribe(lambda state: state.batches, lambda: SOON) as batches:
            await watch.watcher.notify_of_changes()
            assert not unclaimed.is_set()
            await asyncio.to_thread(watch.rows.add)
            watch.watcher.request_check()
            await asyncio.wait_for(unclaimed.wait(), 60)
            assert not batches.is_set()


async def test_a_look_that_fails_is_not_the_last_one(watch: Watch) -> None:
    failures = iter((ValueError("of a look"),))

    def read(watched: Collection[str]) -> StoreState:
        for failure in failures:
            raise failure
        with watch.rows.store.view() as tx:
            return tx.system.states.read_state(watched)

    watch.rows.add()
    watcher = ChangeWatcher(watch.rows.store.mark, read, watch.rows.clock)
    with watcher.subscribe(lambda state: state.unclaimed, lambda: 0.001) as changed:
        await asyncio.wait_for(changed.wait(), 60)
