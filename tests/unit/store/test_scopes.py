"""Transactions with a scope: what they exclude, what they may change, and what happens where that is not enough."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from maestro.domain.agents.edits import NewAgent
from maestro.domain.errors import ScopeTooNarrow, StoreBusy
from maestro.domain.jobs.job import Job, JobEnding, JobStatus
from maestro.domain.messages import Address, LaneKey
from maestro.store.store import Store
from maestro.store.transaction import Transaction, open_savepoint
from tests.support.fresh_store import fresh_store

only_beside = pytest.mark.postgresql_only(reason="SQLite has one writer and ignores scopes")
BOTH = 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with two jobs, one of them with a lane."""
    store = fresh_store(tmp_path / "maestro.db")
    with store.begin() as tx:
        for name, lane in (("one", "web/default/a"), ("two", "web/default/b")):
            its: dict[str, Any] = {"lane": LaneKey(lane), "platform": "web", "account": "default", "channel": name}
            tx.jobs.add(Job(id=name, created_at=tx.now, **its))
    yield store
    store.close()


def edit_agent(tx: Transaction) -> None:
    tx.agents.create(NewAgent(slug="ada"), "operator")


def has_agent(tx: Transaction) -> bool:
    return bool(tx.agents.list_agents())


@only_beside
def test_transactions_of_two_jobs_are_open_at_once(store: Store) -> None:
    both = threading.Barrier(BOTH)

    def start(job_id: str) -> None:
        with store.begin(job=job_id) as tx:
            assert tx.jobs.mark_started(job_id) is not None
            both.wait(30)

    with ThreadPoolExecutor(BOTH) as threads:
        list(threads.map(start, ("one", "two")))
    with store.view() as tx:
        assert {job.id for job in tx.jobs.list_running()} == {"one", "two"}


@only_beside
@pytest.mark.parametrize("scope", [{"job": "one"}, {}], ids=["same-job", "alone"])
def test_a_transaction_waits_for_another_one_of_its_scope_and_for_one_that_runs_alone(
    store: Store, scope: dict[str, Any]
) -> None:
    impatient = Store(store.location, busy_seconds=0.2)
    with store.begin(**scope) as tx:
        tx.jobs.read("one")
        with pytest.raises(StoreBusy), impatient.begin(job="one") as other:
            other.jobs.read("one")
    impatient.close()


@only_beside
def test_a_transaction_without_a_scope_waits_for_all_that_have_one(store: Store) -> None:
    impatient = Store(store.location, busy_seconds=0.2)
    with store.begin(job="one") as tx:
        tx.jobs.read("one")
        with pytest.raises(StoreBusy), impatient.begin() as other:
            other.jobs.read("two")
    impatient.close()


@only_beside
def test_a_scoped_transaction_changes_only_its_tables_and_its_own_job(store: Store) -> None:
    def other_job(tx: Transaction) -> None:
        tx.jobs.update_job("two", attempts=1)

    def several_jobs(tx: Transaction) -> None:
        tx.jobs.merged.merge_jobs(["two"], "one")

    def changed_object(tx: Transaction) -> None:
        tx.jobs.get("two").attempts = 1
        tx.flush_writes()

    def statement(tx: Transaction) -> None:
        tx.jobs._run_statement(update(Job).values(attempts=1))

    for change in (edit_agent, other_job, several_jobs, changed_object, statement):
        with pytest.raises(ScopeTooNarrow), store.begin(job="one") as tx:
            change(tx)
    with store.begin(lane="web/default/a") as tx, pytest.raises(ScopeTooNarrow):
        tx.jobs.update_job("one", attempts=1)
    with store.view() as tx:
        assert not has_agent(tx)
        assert tx.jobs.read("two").attempts == 0


def test_work_that_its_scope_does_not_allow_is_repeated_alone(store: Store) -> None:
    def work(tx: Transaction) -> None:
        tx.jobs.update_job("one", attempts=tx.jobs.read("one").attempts + 1)
        edit_agent(tx)

    store.write(work, job="one")
    with store.view() as tx:
        assert tx.jobs.read("one").attempts == 1, "the first try left nothing"
        assert has_agent(tx)


@only_beside
@pytest.mark.parametrize("inner", [{}, {"job": "two"}, {"lane": "web/default/a"}], ids=["alone", "other-job", "lane"])
def test_a_transaction_inside_a_scoped_one_does_not_leave_its_scope(store: Store, inner: dict[str, Any]) -> None:
    def work() -> None:
        with store.begin(job="one") as tx:
            tx.jobs.update_job("one", attempts=1)
            with store.begin(**inner) as nested:
                edit_agent(nested)

    with pytest.raises(ScopeTooNarrow):
        work()
    with store.view() as tx:
        assert (tx.jobs.read("one").attempts, has_agent(tx)) == (0, False)


def test_a_transaction_of_the_same_scope_or_inside_one_that_runs_alone_is_a_part_of_it(store: Store) -> None:
    outers: tuple[dict[str, Any], ...] = ({"job": "one"}, {})
    for outer in outers:
        with store.begin(**outer), store.begin(job="one") as tx:
            tx.jobs.update_job("one", attempts=tx.jobs.read("one").attempts + 1)
    with store.view() as tx:
        assert tx.jobs.read("one").attempts == BOTH


def test_one_job_of_a_lane_runs(store: Store) -> None:
    with store.begin() as tx:
        tx.jobs.update_job("two", lane="web/default/a")
        assert tx.jobs.mark_started("one") is not None
    with store.begin(job="two") as tx:
        assert tx.jobs.mark_started("two") is None
    with pytest.raises(Exception, match=r"ux_queue_running_lane|queue\.lane") as refused, store.begin() as tx:
        tx.jobs._run_statement(update(Job).values(status=JobStatus.RUNNING))
    assert isinstance(refused.value, IntegrityError)


@only_beside
def test_of_two_jobs_of_a_lane_that_begin_at_once_the_second_waits_and_finds_it_taken(store: Store) -> None:
    with store.begin() as tx:
        tx.jobs.update_job("two", lane="web/default/a")
    begun, started = threading.Event(), []

    def second() -> None:
        begun.wait(30)
        with store.begin(job="two") as tx:
            started.append(tx.jobs.mark_started("two"))

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(second)
        with store.begin(job="one") as tx:
            assert tx.jobs.mark_started("one") is not None
            begun.set()
            tx.jobs.end_job("one", JobEnding(status=JobStatus.COMPLETED))
        waiting.result(30)
    assert started[0] is not None, "the lane was free again"


@only_beside
def test_a_settled_view_waits_until_no_transaction_is_open(store: Store) -> None:
    impatient = Store(store.location, busy_seconds=0.2)
    with store.begin(job="one") as tx:
        tx.jobs.read("one")
        with pytest.raises(StoreBusy), impatient.view(settled=True):
            pass
        with impatient.view() as beside:
            assert beside.jobs.read("one").attempts == 0
    with impatient.view(settled=True) as settled:
        assert settled.jobs.read("one").attempts == 0
    with store.begin() as tx:
        tx.jobs.update_job("one", attempts=1)
    impatient.close()


def test_a_write_in_a_view_raises_and_leaves_nothing_to_the_next_transaction(store: Store) -> None:
    def write(tx: Transaction) -> None:
        tx.jobs.update_job("one", attempts=1)

    def read_and_write(tx: Transaction) -> None:
        tx.jobs.read_status("one")
        write(tx)

    for work in (write, read_and_write):
        with pytest.raises(Exception, match=r"read-?only"):
            store.read(work)
    with store.begin(job="two") as tx:
        tx.jobs.update_job("two", attempts=2)
    with store.view() as tx:
        assert [tx.jobs.read(name).attempts for name in ("one", "two")] == [0, 2]


@pytest.mark.parametrize("scope", [{"job": "one"}, {}], ids=["scoped", "alone"])
def test_a_row_that_is_refused_in_a_savepoint_rolls_back_only_the_savepoint(
    store: Store, scope: dict[str, Any]
) -> None:
    called: list[str] = []
    place = Address(platform="web", account="default", channel="one")

    def add_again(tx: Transaction) -> None:
        with open_savepoint(tx):
            tx.call_after_commit(lambda: called.append("inside"))
            tx.inbox.ignored.add_ignored(place, "a reason")
            tx.jobs.update_job("one", reason="noted")
            tx.jobs.add_job(id="two", **place.model_dump())

    with store.begin(**scope) as tx:
        tx.jobs.update_job("one", attempts=1)
        tx.call_after_commit(lambda: called.append("before"))
        with pytest.raises(Exception, match="queue"):
            add_again(tx)
        tx.jobs.update_job("one", recoveries=1)
    with store.view() as tx:
        job = tx.jobs.read("one")
        assert (job.attempts, job.reason, job.recoveries) == (1, "", 1)
        assert not tx.inbox.ignored.count_by_reason()
    assert called == ["before"]
