"""Batches: each of their jobs has its turn exactly once, whoever works on them and whatever happens meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.agents.agent import AgentStatus
from maestro.domain.errors import Conflict, InvalidEdit, NotFound, StoreBusy
from maestro.domain.jobs.batches import (
    AT_ONCE,
    IN_A_LANE,
    BatchAction,
    BatchItemView,
    BatchRequest,
    BatchView,
    ItemState,
    batch_view,
)
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import Job, JobEdits, JobEnding, JobKind, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.messages import Address
from maestro.operations.jobs import BatchOperations, JobOperations
from maestro.store.store import Store
from maestro.store.users.audit import set_origin
from temporal import replays
from temporal.replays import BatchWork
from tests.support.api_client import no_temporal
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent

MANY = 1000
FAILED = JobFilter(status=(JobStatus.FAILED,))
EVERY = JobFilter()


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def told() -> list[str]:
    """The jobs whose workflows were told."""
    return []


@pytest.fixture
def work(rows: JobRows, told: list[str]) -> BatchWork:
    return worker(rows.store, told)


def worker(store: Store, told: list[str]) -> BatchWork:
    async def interrupt(job_id: str) -> None:
        told.append(job_id)

    return BatchWork(store, interrupt, wake=lambda: None)


def begin(rows: JobRows, action: BatchAction, wanted: JobFilter | None = FAILED, **more: object) -> BatchView:
    return BatchOperations(rows.store).begin(BatchRequest(action=action, filter=wanted, **more), "ada")


def now(rows: JobRows, batch: BatchView) -> BatchView:
    with rows.store.view() as tx:
        return batch_view(tx.jobs.batches.get(batch.id), tx.jobs.batches.count_items_by_state(batch.id), tx.now)


def items(rows: JobRows, batch: BatchView) -> list[BatchItemView]:
    with rows.store.view() as tx:
        return list(tx.jobs.batches.list_items(batch.id, (), 0, MANY + 1))


def job(rows: JobRows, job_id: str) -> Job:
    with rows.store.view() as tx:
        return tx.jobs.read(job_id)


def _web(channel: str) -> dict[str, Any]:
    return Address(platform="web", channel=channel).model_dump()


def many_failed(rows: JobRows, count: int, lanes: int) -> list[str]:
    """Add failed jobs in one transaction, spread over lanes."""
    rows.clock.go(seconds=1)
    ids = [f"message-{number:05}" for number in range(count)]
    with rows.store.begin() as tx:
        for number, job_id in enumerate(ids):
            lane = f"c-{number % lanes}"
            one = Job(id=job_id, kind=JobKind.CRON, task="look", lane=lane, created_at=tx.now, **_web(lane))
            row = tx.jobs.add(one)
            row.status = JobStatus.FAILED
    return ids


def finish_open(rows: JobRows, status: JobStatus = JobStatus.COMPLETED) -> int:
    """End every open job, as a worker does in time."""
    with rows.store.view() as tx:
        found, _ = tx.jobs.lists.list_jobs(JobFilter(status=(JobStatus.PENDING,)), None, 200)
    with rows.store.begin() as tx:
        for one in found:
            tx.jobs.close_job(one.job.id, JobEnding(status=status))
    return len(found)


async def asked(rows: JobRows) -> str:
    """Ask what a job that has ended would answer now, and return the job that shows it."""
    ended = rows.end(rows.add(), JobStatus.COMPLETED)
    control = JobOperations(rows.store, no_temporal)
    return await control.replay(ended, ReplayMode.WHAT_IF, "ada")


def runs(rows: JobRows) -> Counter[int]:
    with rows.store.view() as tx:
        found, _ = tx.jobs.lists.list_jobs(EVERY, None, MANY + 1)
    return Counter(one.job.run for one in found)


# Many


async def test_a_thousand_failed_jobs_are_resumed_each_once_and_few_at_a_time(rows: JobRows, work: BatchWork) -> None:
    ids = many_failed(rows, MANY, lanes=100)
    batch = begin(rows, BatchAction.RESUME)
    assert (batch.total, batch.waiting, batch.ended_at) == (MANY, MANY, None)
    most, rounds = 0, 0
    while now(rows, batch).ended_at is None:
        while await work.process_due_items():
            pass
        most = max(most, finish_open(rows))
        rounds += 1
        assert rounds <= MANY
    assert most == AT_ONCE
    assert runs(rows) == {2: MANY}
    view = now(rows, batch)
    assert (view.waiting, view.begun, view.completed, view.refused, view.open) == (0, MANY, MANY, 0, 0)
    assert [item.job_id for item in items(rows, batch)] == ids
    assert all(item.began == item.job_id for item in items(rows, batch))


async def test_in_one_lane_few_wait_so_that_a_person_is_soon_next(rows: JobRows, work: BatchWork) -> None:
    first = many_failed(rows, 10, lanes=1)
    begin(rows, BatchAction.RESUME)
    assert await work.process_due_items()
    assert not await work.process_due_items()
    assert [one for one in first if job(rows, one).status is JobStatus.PENDING] == first[:IN_A_LANE]
    newer = rows.add("somebody writes")
    with rows.store.begin() as tx:
        tx.jobs.update_job(newer, lane="c-0")
        tx.jobs.close_job(first[0], JobEnding(status=JobStatus.COMPLETED))
    assert await work.process_due_items()
    assert job(rows, first[2]).status is JobStatus.PENDING
    with rows.store.view() as tx:
        turns = {one: tx.jobs.read(one).turn or 0 for one in (first[1], newer, first[2])}
    assert sorted(turns, key=lambda one: turns[one]) == [first[1], newer, first[2]]


async def test_two_processes_work_on_one_batch_and_begin_each_job_once(rows: JobRows, tmp_path: Path) -> None:
    many_failed(rows, AT_ONCE, lanes=AT_ONCE)
    batch = begin(rows, BatchAction.RESTART)
    other = Store(tmp_path / "maestro.db", rows.clock)
    try:
        both = (worker(rows.store, []), worker(other, []))
        await asyncio.gather(*(one.process_due_items() for one in both for _ in range(2)))
    finally:
        other.close()
    began = [item.began for item in items(rows, batch)]
    assert len(set(began)) == AT_ONCE
    assert len(runs(rows)) == 1
    assert runs(rows).total() == 2 * AT_ONCE
    assert now(rows, batch).begun == AT_ONCE


# What was told before is what happens


async def test_a_dry_run_changes_nothing_and_tells_what_happens(rows: JobRows, work: BatchWork) -> None:
    failed, completed, pending = rows.failed(), rows.end(rows.add(), JobStatus.COMPLETED), rows.add()
    answered = rows.add()
    rows.worked(answered)
    rows.end(answered, JobStatus.FAILED, "PermanentSend", "closed")
    wish = BatchRequest(action=BatchAction.RESUME, filter=EVERY)
    with rows.store.view() as tx:
        before = len(tx.system.audit.list_latest_entries(100))
    told = BatchOperations(rows.store).forecast(wish)
    with rows.store.view() as tx:
        assert len(tx.system.audit.list_latest_entries(100)) == before
        assert tx.jobs.batches.list_newest_batches(None, 10) == []
    assert (told.matching, told.possible) == (4, 2)
    assert (told.model_calls, told.cost_usd, told.unknown_cost) == (1, 0.0025, 0), "the mean of what was paid of late"
    assert {(step.step, step.count) for step in told.steps} == {("route", 1), ("model-1", 1)}

    batch = begin(rows, BatchAction.RESUME, EVERY)
    rows.end(pending, JobStatus.COMPLETED)
    while await work.process_due_items():
        pass
    states = {item.job_id: item.state for item in items(rows, batch)}
    assert states == {
        failed: ItemState.BEGUN,
        answered: ItemState.BEGUN,
        completed: ItemState.REFUSED,
        pending: ItemState.REFUSED,
    }
    assert sum(group.count for group in told.refused) == 2
    problems = {item.job_id: item.problem for item in items(rows, batch)}
    assert "no failed step" in problems[completed]
    assert "is pending" in problems[pending]


async def test_a_restart_of_two_jobs_of_one_message_is_one_restart(rows: JobRows, work: BatchWork) -> None:
    first = rows.failed()
    control = JobOperations(rows.store, no_temporal)
    second = await control.replay(first, ReplayMode.RESTART, "ada")
    rows.end(second, JobStatus.FAILED, "ProviderDown")
    told = BatchOperations(rows.store).forecast(BatchRequest(action=BatchAction.RESTART, filter=FAILED))
    assert (told.matching, told.possible) == (2, 1)
    batch = begin(rows, BatchAction.RESTART)
    while await work.process_due_items():
        pass
    assert [item.state for item in items(rows, batch)] == [ItemState.BEGUN, ItemState.REFUSED]
    with rows.store.view() as tx:
        assert tx.jobs.counts.count_by_status(EVERY) == {JobStatus.FAILED: 2, JobStatus.PENDING: 1}


async def test_a_job_that_somebody_else_replayed_meanwhile_is_refused_with_the_reason(
    rows: JobRows, work: BatchWork
) -> None:
    taken, free = rows.failed(), rows.failed()
    batch = begin(rows, BatchAction.RESUME)
    control = JobOperations(rows.store, no_temporal)
    await control.replay(taken, ReplayMode.RESUME, "grace")
    while await work.process_due_items():
        pass
    refused, begun = items(rows, batch)
    assert (refused.state, refused.began, refused.status) == (ItemState.REFUSED, "", None)
    assert f"job {taken} is pending; only an ended job can be replayed" in refused.problem
    assert (begun.state, begun.began, begun.status) == (ItemState.BEGUN, free, JobStatus.PENDING)
    assert (job(rows, taken).run, job(rows, free).run) == (2, 2)


async def test_jobs_may_be_chosen_by_their_ids(rows: JobRows, work: BatchWork) -> None:
    wanted, other = rows.failed(), rows.failed()
    batch = begin(rows, BatchAction.RESUME, None, ids=(wanted, "nobody", wanted))
    while await work.process_due_items():
        pass
    assert [(item.job_id, item.state) for item in items(rows, batch)] == [
        (wanted, ItemState.BEGUN),
        ("nobody", ItemState.REFUSED),
    ]
    assert job(rows, other).run == 1
    assert batch.filter is None


async def test_nobody_replays_more_than_he_saw(rows: JobRows) -> None:
    rows.failed(), rows.failed()
    with pytest.raises(Conflict, match="2 jobs match by now, not 1"):
        begin(rows, BatchAction.RESUME, expected=1)
    assert begin(rows, BatchAction.RESUME, expected=2).total == 2


async def test_a_batch_with_nothing_to_do_has_ended(rows: JobRows, work: BatchWork) -> None:
    rows.end(rows.add(), JobStatus.COMPLETED)
    assert begin(rows, BatchAction.RESUME, FAILED).ended_at is not None
    refused = begin(rows, BatchAction.RESUME, EVERY)
    assert (refused.refused, refused.ended_at is not None) == (1, True)
    assert not await work.process_due_items()


# Edits


async def test_edits_are_those_of_every_restart(rows: JobRows, work: BatchWork) -> None:
    failed = rows.failed()
    batch = begin(rows, BatchAction.RESTART, edits=JobEdits(model="claude-other"))
    while await work.process_due_items():
        pass
    (item,) = items(rows, batch)
    assert item.began != failed
    assert job(rows, item.began).edits == '{"model":"claude-other"}'
    assert batch.edits == JobEdits(model="claude-other")


def test_an_agent_that_does_not_exist_is_no_edit(rows: JobRows) -> None:
    rows.failed()
    with pytest.raises(InvalidEdit, match="nobody"):
        begin(rows, BatchAction.RESTART, edits=JobEdits(agent="nobody"))


async def test_an_agent_that_was_chosen_before_and_is_gone_is_told_before(rows: JobRows, work: BatchWork) -> None:
    add_agent(rows, "bob")
    control = JobOperations(rows.store, no_temporal)
    edited = await control.replay(rows.failed(), ReplayMode.RESTART, "ada", JobEdits(agent="bob"))
    rows.end(edited, JobStatus.FAILED, "NoAgent")
    chosen = JobFilter(error="NoAgent")
    wish = BatchRequest(action=BatchAction.RESTART, filter=chosen)
    assert BatchOperations(rows.store).forecast(wish).possible == 1
    with rows.store.begin() as tx:
        bob = tx.agents.find_agent_by_slug("bob")
        assert bob is not None
        bob.status = AgentStatus.PAUSED
        tx.agents.save_agent(bob)
    told = BatchOperations(rows.store).forecast(wish)
    assert (told.possible, [group.reason for group in told.refused]) == (
        0,
        ["agent: bob, chosen for the last restart, is not active"],
    )
    batch = begin(rows, BatchAction.RESTART, chosen)
    while await work.process_due_items():
        pass
    assert [item.state for item in items(rows, batch)] == [ItemState.REFUSED]


async def test_a_what_if_is_counted_and_never_done_again_with_others(rows: JobRows, work: BatchWork) -> None:
    failed, shown = rows.failed(), await asked(rows)
    rows.end(shown, JobStatus.FAILED, "ProviderDown")
    told = BatchOperations(rows.store).forecast(BatchRequest(action=BatchAction.RESUME, filter=FAILED))
    with rows.store.view() as tx:
        assert told.matching == tx.jobs.counts.count_by_status(FAILED)[JobStatus.FAILED] == 2, (
            "as many as the list shows"
        )
    assert [(group.count, group.example) for group in told.refused] == [(1, shown)]
    batch = begin(rows, BatchAction.RESUME)
    while await work.process_due_items():
        pass
    assert {one.job_id: one.state for one in items(rows, batch)} == {failed: ItemState.BEGUN, shown: ItemState.REFUSED}


# Cancel and stop


async def test_a_what_if_is_cancelled_with_the_others(rows: JobRows, work: BatchWork) -> None:
    shown = await asked(rows)
    begin(rows, BatchAction.CANCEL, JobFilter(status=(JobStatus.PENDING,)))
    while await work.process_due_items():
        pass
    assert job(rows, shown).status is JobStatus.CANCELLED


async def test_every_open_job_is_cancelled(rows: JobRows, work: BatchWork, told: list[str]) -> None:
    ended, pending, running = rows.failed(), rows.add(), rows.add()
    rows.worked(running)
    batch = begin(rows, BatchAction.CANCEL, EVERY)
    while await work.process_due_items():
        pass
    assert [item.state for item in items(rows, batch)] == [ItemState.REFUSED, ItemState.BEGUN, ItemState.BEGUN]
    assert (job(rows, ended).status, job(rows, pending).status) == (JobStatus.FAILED, JobStatus.CANCELLED)
    assert job(rows, pending).reason == "cancelled by ada"
    assert job(rows, running).stop_requested
    assert told == [running], "only what has a workflow is told"


async def test_a_crowd_is_cancelled_without_waiting_for_a_place(rows: JobRows, work: BatchWork) -> None:
    many_failed(rows, 2 * AT_ONCE, lanes=1)
    with rows.store.begin() as tx:
        for number in range(2 * AT_ONCE):
            tx.jobs.update_job(f"message-{number:05}", status=JobStatus.PENDING)
    batch = begin(rows, BatchAction.CANCEL, EVERY)
    assert await work.process_due_items()
    assert await work.process_due_items()
    assert now(rows, batch).ended_at is not None
    with rows.store.view() as tx:
        assert tx.jobs.counts.count_by_status(EVERY) == {JobStatus.CANCELLED: 2 * AT_ONCE}


async def test_a_stopped_batch_begins_no_more_and_what_it_began_goes_on(rows: JobRows, work: BatchWork) -> None:
    ids = many_failed(rows, 5, lanes=1)
    batch = begin(rows, BatchAction.RESUME)
    await work.process_due_items()
    control = BatchOperations(rows.store)
    stopped = control.stop(batch.id, "ada")
    assert (stopped.stopped, stopped.begun, stopped.skipped, stopped.waiting) == (True, IN_A_LANE, 3, 0)
    finish_open(rows)
    assert not await work.process_due_items()
    assert [job(rows, one).run for one in ids] == [2, 2, 1, 1, 1]
    with pytest.raises(Conflict, match="has ended"):
        control.stop(batch.id, "ada")
    with pytest.raises(NotFound):
        control.stop("batch-unknown", "ada")


# Who did it, and what goes wrong


async def test_the_audit_log_says_who_from_where_for_the_batch_and_each_job(rows: JobRows, work: BatchWork) -> None:
    failed = rows.failed()
    with set_origin("203.0.113.9"):
        batch = begin(rows, BatchAction.RESUME)
    await work.process_due_items()
    with rows.store.view() as tx:
        entries = [
            (one.actor, one.action, one.subject, one.origin)
            for one in reversed(tx.system.audit.list_latest_entries(10))
        ]
    assert entries == [("ada", "jobs.resume", batch.id, "203.0.113.9"), ("ada", "job.resume", failed, "203.0.113.9")]


async def test_a_job_that_nobody_can_begin_does_not_keep_the_others_from_their_turn(
    rows: JobRows, work: BatchWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, fine = rows.failed(), rows.failed()
    do = replays._replay_or_stop

    def breaking(tx: object, batch: object, job_id: str) -> object:
        if job_id == broken:
            raise KeyError("a bug")
        return do(tx, batch, job_id)  # type: ignore[arg-type]

    batch = begin(rows, BatchAction.RESUME)
    monkeypatch.setattr(replays, "_replay_or_stop", breaking)
    while await work.process_due_items():
        pass
    refused, begun = items(rows, batch)
    assert (refused.state, refused.problem) == (ItemState.REFUSED, f"{replays.BROKE} (KeyError)")
    assert (begun.state, begun.began) == (ItemState.BEGUN, fine)
    assert now(rows, batch).ended_at is not None
    assert job(rows, broken).status is JobStatus.FAILED


async def test_a_store_that_does_not_answer_is_asked_again(
    rows: JobRows, work: BatchWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = rows.failed()
    batch = begin(rows, BatchAction.RESUME)
    begun = asyncio.Event()
    monkeypatch.setattr(replays, "AFTER_TROUBLE_SECONDS", 0.0)
    original, failures = rows.store.begin, [1, 1]

    def begin_or_not(**_scope: str) -> object:
        if failures:
            failures.pop()
            raise StoreBusy("the store did not answer")
        return original()

    monkeypatch.setattr(rows.store, "begin", begin_or_not)
    work._wake = begun.set
    running = asyncio.create_task(work.run())
    await asyncio.wait_for(begun.wait(), 30)
    running.cancel()
    assert failures == []
    assert job(rows, failed).run == 2
    assert now(rows, batch).ended_at is not None


async def test_who_works_on_batches_wakes_a_dispatcher_only_when_there_is_something(rows: JobRows) -> None:
    woken: list[int] = []

    async def interrupt(_: str) -> None:
        raise AssertionError

    wake: Callable[[], None] = lambda: woken.append(1)  # noqa: E731 - a name for a type
    work = BatchWork(rows.store, interrupt, wake)
    assert not await work.process_due_items()
    rows.failed()
    begin(rows, BatchAction.RESUME)
    assert await work.process_due_items()
    assert not await work.process_due_items()
    assert woken == [1]
