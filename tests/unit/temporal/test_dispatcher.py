"""What the dispatcher starts and when it looks, with a client that notes what Temporal is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.jobs.job import JobRef, JobStatus
from maestro.domain.messages import AcceptedMessage, Address, IncomingMessage
from maestro.installation.leases import FileLeases
from maestro.intake import Intake, IntakeRules
from maestro.store.cache import StoreState
from maestro.store.jobs.claims import ClaimedJob
from temporal.dispatcher import Dispatcher, DispatcherView, Queues, RunSettings
from tests.support.doors import EVERYBODY
from tests.support.fresh_store import path_of
from tests.support.job_rows import JobRows

LOOK = 0.01
DEFAULTS = JobRef(job_id="", run=1, heartbeat_seconds=1, model_seconds=1, tool_seconds=1, tool_rounds=1, grouped=True)
PACE = RunSettings(Queues("maestro"), look=LOOK, background=1, defaults=DEFAULTS)
RULES = IntakeRules(100, EVERYBODY)


class Temporal:
    """Takes workflows, or is away."""

    def __init__(self) -> None:
        self.away = False
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.refused = asyncio.Event()

    async def start_workflow(self, _workflow: Any, _ref: Any, **options: Any) -> None:
        """Note the id of a workflow."""
        assert options["request_eager_start"]
        if self.away:
            self.refused.set()
            raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")
        self.started.put_nowait(options["id"])

    async def next(self) -> str:
        """Return the id of the next workflow that is started."""
        return await asyncio.wait_for(self.started.get(), 60)


class CountingDispatcher(Dispatcher):
    """Counts its looks, and the transactions in which it claims."""

    looks = 0
    claims = 0

    def _find_work(self, state: StoreState | None, has_new: bool) -> DispatcherView:
        look = super()._find_work(state, has_new)
        self.looks += 1
        return look

    def _claim_jobs(self) -> Sequence[ClaimedJob]:
        self.claims += 1
        return super()._claim_jobs()


class Desk:
    """A dispatcher, the intake that hands it jobs, and what either writes."""

    def __init__(self, rows: JobRows) -> None:
        self.rows = rows
        self.temporal = Temporal()
        self.said: list[str] = []
        self.dispatcher = CountingDispatcher(
            rows.store, lambda: PACE, self.said.append, FileLeases(path_of(rows.store).parent, "this")
        )
        self.intake = Intake(rows.store, lambda: RULES, self.dispatcher.check_soon, self.dispatcher)

    async def take(self, name: str, channel: str) -> AcceptedMessage:
        """Take a message in, as a connector does."""
        message = IncomingMessage(
            id=name,
            address=Address(platform="web", channel=channel),
            user_id="grace",
            content="hello",
            sent_at=self.rows.clock.now,
            is_direct=True,
        )
        return await asyncio.to_thread(self.intake.accept_message, message)

    def run_job(self, job_id: str) -> None:
        """Begin a job, as its workflow does."""
        with self.rows.store.begin() as tx:
            tx.jobs.mark_started(job_id)


@asynccontextmanager
async def running(desk: Desk) -> AsyncIterator[Desk]:
    client: Any = desk.temporal
    task = asyncio.create_task(desk.dispatcher.run(client))
    try:
        while desk.dispatcher.looks == 0:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        yield desk
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


async def test_a_message_with_nothing_before_it_is_started_without_a_look(rows: JobRows) -> None:
    async with running(Desk(rows)) as desk:
        looks, claims = desk.dispatcher.looks, desk.dispatcher.claims
        accepted = await desk.take("m", "one")
        assert await desk.temporal.next() == accepted.job_id
        await rows.store.changes.notify_of_changes()
        assert (desk.dispatcher.looks, desk.dispatcher.claims) == (looks, claims)


async def test_what_waits_behind_another_is_started_when_its_place_is_free(rows: JobRows) -> None:
    async with running(Desk(rows)) as desk:
        first, second = await desk.take("first", "one"), await desk.take("second", "one")
        assert await desk.temporal.next() == first.job_id
        await asyncio.to_thread(rows.end, first.job_id, JobStatus.COMPLETED)
        desk.dispatcher.check_after_release()
        assert await desk.temporal.next() == second.job_id


async def test_the_end_of_a_job_with_nothing_behind_it_makes_nobody_look(rows: JobRows) -> None:
    async with running(Desk(rows)) as desk:
        accepted = await desk.take("m", "one")
        await desk.temporal.next()
        await asyncio.to_thread(desk.run_job, accepted.job_id)
        looks = desk.dispatcher.looks
        await asyncio.to_thread(rows.end, accepted.job_id, JobStatus.COMPLETED)
        desk.dispatcher.check_after_release()
        await rows.store.changes.notify_of_changes()
        await asyncio.sleep(0)
        assert desk.dispatcher.looks == looks


async def test_what_another_process_took_in_is_found(rows: JobRows) -> None:
    async with running(Desk(rows)) as desk:
        job_id = await asyncio.to_thread(rows.add)
        assert await desk.temporal.next() == job_id


async def test_a_job_that_was_claimed_by_a_process_that_is_gone_is_started_at_the_next_start(rows: JobRows) -> None:
    desk = Desk(rows)
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, claimed_at=tx.now)  # and the process died before it could start it
    async with running(desk):
        assert await desk.temporal.next() == job_id


async def test_a_start_leaves_the_claims_of_other_processes_that_live(rows: JobRows) -> None:
    folder = path_of(rows.store).parent
    with contextlib.closing(FileLeases(folder, "alive")):
        theirs, orphan = rows.add(), rows.add()
        with rows.store.begin() as tx:
            for job_id, owner in ((theirs, "alive"), (orphan, "killed")):
                tx.jobs.update_job(job_id, claimed_at=tx.now, claimed_by=owner, lane=job_id)
        async with running(Desk(rows)) as desk:
            assert await desk.temporal.next() == orphan
    with rows.store.view() as tx:
        kept = tx.jobs.read(theirs)
    assert (kept.claimed_by, kept.status, desk.temporal.started.empty()) == ("alive", JobStatus.PENDING, True)


async def test_while_temporal_is_away_messages_are_taken_in_and_told_once(rows: JobRows) -> None:
    async with running(Desk(rows)) as desk:
        desk.temporal.away = True
        first = await desk.take("first", "one")
        await asyncio.wait_for(desk.temporal.refused.wait(), 60)
        while desk.dispatcher.ready:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
        second = await desk.take("second", "two")
        desk.temporal.away = False
        assert {await desk.temporal.next(), await desk.temporal.next()} == {first.job_id, second.job_id}
        assert len(desk.said) == 1
        while not desk.dispatcher.ready:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)


async def test_after_a_pause_nothing_is_started(rows: JobRows) -> None:
    async with running(Desk(rows)) as desk:
        desk.dispatcher.pause_claims()
        assert not desk.dispatcher.ready
        await desk.take("m", "one")
        await asyncio.sleep(0)
        assert desk.temporal.started.empty()
