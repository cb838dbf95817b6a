"""Jobs that wait: they give their place back, keep their turn, and go on when it is time or somebody wakes them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from maestro.domain.errors import WaitReason
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, StepRef, Wait
from maestro.domain.messages import LaneKey
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store
from tests.support.job_rows import Clock

LANE = LaneKey("web/default/c")
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


def add(store: Store, *names: str) -> None:
    with store.begin() as tx:
        for name in names:
            tx.jobs.add(Job(id=name, lane=LANE, platform="web", account="default", channel="c", created_at=tx.now))


def claim(store: Store) -> list[str]:
    """Do what a dispatcher does at each look, and let what was claimed run."""
    with store.begin() as tx:
        tx.jobs.resume_due()
        claimed = [job.id for job in tx.jobs.claim_jobs(10, tx.now - MINUTE)]
        for name in claimed:
            tx.jobs.mark_started(name)
    return claimed


def park(store: Store, name: str, wake_at: datetime | None, reason: WaitReason = WaitReason.ACCOUNT) -> None:
    with store.begin() as tx:
        tx.jobs.park_job(name, Wait(reason=reason, wake_at=wake_at))


def end(store: Store, name: str) -> None:
    with store.begin() as tx:
        tx.jobs.close_job(name, JobEnding(status=JobStatus.COMPLETED))


def job(store: Store, name: str) -> Job:
    with store.view() as tx:
        return tx.jobs.get(name)


def test_a_waiting_job_leaves_its_lane_to_the_next(store: Store, clock: Clock) -> None:
    add(store, "first", "second")
    assert claim(store) == ["first"]
    park(store, "first", clock.now + MINUTE)
    assert claim(store) == ["second"]
    assert job(store, "first").status is JobStatus.WAITING


def test_it_goes_on_when_it_is_time_as_a_new_run_before_those_that_came_after_it(store: Store, clock: Clock) -> None:
    add(store, "first", "second", "third")
    claim(store)
    park(store, "first", clock.now + MINUTE)
    assert claim(store) == ["second"]
    clock.go(seconds=59)
    assert claim(store) == []
    clock.go(seconds=1)
    assert claim(store) == [], "the second still runs"
    end(store, "second")
    assert claim(store) == ["first"]
    assert job(store, "first").run == 2
    end(store, "first")
    assert claim(store) == ["third"]


def test_never_do_two_jobs_of_a_lane_run_at_once(store: Store, clock: Clock) -> None:
    add(store, "first", "second")
    claim(store)
    park(store, "first", clock.now)
    with store.begin() as tx:
        assert [one.id for one in tx.jobs.claim_jobs(10, tx.now - MINUTE)] == ["second"]
        tx.jobs.mark_started("second")
    assert claim(store) == []
    with store.view() as tx:
        head = tx.jobs.find_lane_head(LANE)
    assert head is not None
    assert head.id == "second", "who runs is at the head, though the other has an earlier turn"


def test_an_answer_wakes_it_at_once(store: Store, clock: Clock) -> None:
    add(store, "first")
    claim(store)
    park(store, "first", clock.now + timedelta(days=7), WaitReason.PERSON)
    with store.begin() as tx:
        tx.jobs.wake_job("first")
    assert claim(store) == ["first"]


def test_an_answer_that_comes_before_it_waits_is_not_missed(store: Store, clock: Clock) -> None:
    add(store, "first")
    claim(store)
    with store.begin() as tx:
        tx.jobs.wake_job("first")
    clock.go(seconds=1)
    park(store, "first", clock.now + timedelta(days=7), WaitReason.PERSON)
    assert claim(store) == ["first"]


def test_a_job_without_a_time_waits_for_its_event_alone(store: Store, clock: Clock) -> None:
    add(store, "first")
    claim(store)
    park(store, "first", None, WaitReason.PERSON)
    clock.go(days=400)
    assert claim(store) == []


def test_an_account_that_is_free_again_wakes_those_that_wait_for_one_and_nobody_else(
    store: Store, clock: Clock
) -> None:
    add(store, "first", "second")
    claim(store)
    park(store, "first", clock.now + MINUTE, WaitReason.ACCOUNT)
    claim(store)
    park(store, "second", clock.now + MINUTE, WaitReason.PERSON)
    with store.begin() as tx:
        tx.jobs.wake_for_models()
    assert claim(store) == ["first"]


def test_a_clock_that_is_set_back_does_not_prolong_a_wait(store: Store, clock: Clock) -> None:
    add(store, "first")
    claim(store)
    park(store, "first", clock.now + MINUTE)
    clock.go(hours=-5)
    assert claim(store) == ["first"]


def test_midnight_is_no_border(store: Store, clock: Clock) -> None:
    clock.now = clock.now.replace(hour=23, minute=59, second=30)
    add(store, "first")
    claim(store)
    park(store, "first", clock.now + MINUTE)
    clock.go(seconds=59)
    assert claim(store) == []
    clock.go(seconds=1)
    assert clock.now.hour == 0
    assert claim(store) == ["first"]


def test_a_change_of_budgets_wakes_those_that_wait_for_a_budget_alone(store: Store, clock: Clock) -> None:
    add(store, "first", "second")
    claim(store)
    park(store, "first", clock.now + MINUTE, WaitReason.BUDGET)
    claim(store)
    park(store, "second", clock.now + MINUTE, WaitReason.PROVIDER)
    with store.begin() as tx:
        tx.jobs.wake_for_models(WaitReason.BUDGET)
    assert claim(store) == ["first"]


def test_jobs_come_back_to_a_failing_provider_one_after_the_other(store: Store, clock: Clock) -> None:
    names = [f"job-{number}" for number in range(12)]
    with store.begin() as tx:
        for name in names:
            lane = LaneKey(f"web/default/{name}")
            tx.jobs.add(Job(id=name, lane=lane, platform="web", account="default", channel=name, created_at=tx.now))
    for _ in range(2):
        claim(store)
    for name in names:
        park(store, name, clock.now + MINUTE, WaitReason.PROVIDER)
    clock.go(minutes=1)
    assert claim(store) == ["job-0"]
    clock.go(seconds=6)
    assert claim(store) == ["job-1"]
    with store.begin() as tx:
        tx.jobs.wake_for_models(WaitReason.PROVIDER)
    assert {*claim(store), *claim(store)} == set(names[2:]), "a provider that answers again is open to all of them"


def test_a_job_that_waits_longer_keeps_the_later_ones_of_its_lane_behind_it(store: Store, clock: Clock) -> None:
    add(store, "first", "second")
    claim(store)
    park(store, "first", clock.now + MINUTE)
    claim(store)
    park(store, "second", clock.now + 2 * MINUTE)
    clock.go(minutes=1)
    assert claim(store) == ["first"]
    park(store, "first", clock.now + 5 * MINUTE)
    clock.go(minutes=2)
    assert claim(store) == []
    clock.go(minutes=3)
    assert claim(store) == ["first"]


def test_an_ended_job_is_not_woken(store: Store, clock: Clock) -> None:
    add(store, "first")
    claim(store)
    park(store, "first", clock.now + MINUTE)
    end(store, "first")
    with store.begin() as tx:
        tx.jobs.wake_job("first")
        tx.jobs.wake_for_models()
    assert claim(store) == []
    assert job(store, "first").wake_at is None


def test_a_step_says_what_it_waits_for(store: Store, clock: Clock) -> None:
    add(store, "first")
    steps = [StepRef(job_id="first", step=name) for name in ("tool-1-0", "tool-1-1")]
    waits = [
        Wait(reason=WaitReason.PERSON, wake_at=clock.now + MINUTE),
        Wait(reason=WaitReason.PERSON, wake_at=clock.now + 2 * MINUTE),
    ]
    with store.begin() as tx:
        for step, wait in zip(steps, waits, strict=True):
            tx.jobs.steps.start_attempt(step, "call_tool", 1)
            tx.jobs.steps.suspend_attempt(step, "WaitsForPerson", "question 1 is open", wait)
        assert set(tx.jobs.steps.list_waits("first", ["tool-1-0", "tool-1-1"])) == set(waits)
        assert tx.jobs.steps.read_history(steps[0]).result is None
        assert tx.jobs.steps.read_history(steps[0]).count_crashes(1) == 0
