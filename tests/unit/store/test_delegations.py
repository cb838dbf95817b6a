"""Tasks hang on the job whose answer gave them: when they begin, and when who waits to hear of them goes on."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.jobs.job import Job, JobEnding, JobKind, JobStatus
from maestro.domain.jobs.replay import new_restart
from maestro.domain.messages import Address, LaneKey
from maestro.store.jobs.delegations import STOPPED, WITHHELD
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store
from tests.support.job_rows import Clock

LANE = LaneKey("web/default/c")
LAPSE = timedelta(seconds=10)
PLACE = Address(platform="web", channel="c")
COMPLETED, FAILED, CANCELLED = JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


@pytest.fixture(autouse=True)
def _message(store: Store) -> None:
    """A message is being answered."""
    with store.begin() as tx:
        tx.jobs.add(Job(id="root", lane=LANE, created_at=tx.now, **PLACE.model_dump()))
        tx.jobs.mark_started("root")


def give(store: Store, name: str, by: str = "root", *, hears: bool = False, depth: int = 1) -> None:
    """Let the answer of a job give a task."""
    with store.begin() as tx:
        tx.jobs.add(
            Job(
                id=name,
                kind=JobKind.DELEGATION,
                parent_id=by,
                depth=depth,
                task=f"task {name}",
                hears=hears,
                created_at=tx.now,
                **PLACE.model_dump(),
            )
        )


def begin(store: Store, name: str) -> None:
    with store.begin() as tx:
        tx.jobs.mark_started(name)


def end(store: Store, name: str, status: JobStatus = COMPLETED) -> None:
    with store.begin() as tx:
        assert tx.jobs.close_job(name, JobEnding(status=status))


def done(store: Store, name: str) -> None:
    begin(store, name)
    end(store, name)


def claimable(store: Store) -> list[str]:
    with store.view() as tx:
        return [job.id for job in tx.jobs.list_claimable_jobs(10, tx.now - LAPSE)]


def job(store: Store, name: str) -> Job:
    with store.view() as tx:
        return tx.jobs.get(name)


def continuations(store: Store, name: str = "root") -> list[Job]:
    """Return the jobs in which a delegator goes on."""
    with store.view() as tx:
        return [other for other in tx.jobs.delegations.list_children(name) if not other.task]


def test_a_task_waits_for_the_answer_that_gave_it(store: Store, clock: Clock) -> None:
    give(store, "task")
    assert claimable(store) == []
    end(store, "root")
    assert claimable(store) == [], "the workflow that ends now starts it"
    clock.go(seconds=11)
    assert claimable(store) == ["task"], "and if it died before it did, the dispatcher does"


@pytest.mark.parametrize("status", [FAILED, CANCELLED])
def test_without_that_answer_no_task_begins_until_the_job_is_resumed(store: Store, status: JobStatus) -> None:
    give(store, "task", hears=True)
    end(store, "root", status)
    assert (job(store, "task").status, job(store, "task").reason) == (CANCELLED, WITHHELD)
    assert continuations(store) == []
    with store.begin() as tx:
        tx.jobs.delegations.restore_withheld("root")
        tx.jobs.reopen_job(tx.jobs.get("root"))
    assert job(store, "task").status is JobStatus.PENDING
    assert claimable(store) == ["root"]


def test_a_task_that_runs_is_left_alone_by_what_becomes_of_its_parent(store: Store) -> None:
    give(store, "task")
    begin(store, "task")
    end(store, "root", FAILED)
    assert job(store, "task").status is JobStatus.RUNNING


def test_nobody_goes_on_for_a_task_that_nobody_waits_to_hear(store: Store) -> None:
    give(store, "task")
    end(store, "root")
    done(store, "task")
    assert continuations(store) == []


@pytest.mark.parametrize("last", [COMPLETED, FAILED])
def test_the_delegator_goes_on_once_when_all_it_waits_for_has_ended(store: Store, last: JobStatus) -> None:
    give(store, "one", hears=True)
    give(store, "two", hears=True)
    give(store, "aside")
    end(store, "root")
    done(store, "one")
    assert continuations(store) == []
    begin(store, "two")
    end(store, "two", last)
    (goes_on,) = continuations(store)
    assert (goes_on.lane, goes_on.turn, goes_on.depth) == (LANE, job(store, "root").turn, 1)
    assert (goes_on.kind, goes_on.status) == (JobKind.DELEGATION, JobStatus.PENDING)


def test_it_is_next_in_its_lane(store: Store) -> None:
    give(store, "task", hears=True)
    with store.begin() as tx:
        tx.jobs.add(Job(id="later", lane=LANE, created_at=tx.now, **PLACE.model_dump()))
    end(store, "root")
    done(store, "task")
    (goes_on,) = continuations(store)
    assert claimable(store) == [goes_on.id]


def test_a_delegate_that_waits_itself_reports_with_its_last_word(store: Store) -> None:
    give(store, "outer", hears=True)
    end(store, "root")
    begin(store, "outer")
    give(store, "inner", by="outer", hears=True, depth=2)
    end(store, "outer")
    assert continuations(store) == [], "outer has not said its last word"
    done(store, "inner")
    assert continuations(store) == []
    (outer_goes_on,) = continuations(store, "outer")
    assert outer_goes_on.lane is None
    with store.begin() as tx:
        tx.jobs.mark_started(outer_goes_on.id)
        tx.jobs.update_job(outer_goes_on.id, answer_id=7)
        tx.jobs.close_job(outer_goes_on.id, JobEnding(status=COMPLETED))
    assert len(continuations(store)) == 1
    with store.view() as tx:
        assert [(task.id, last.id) for task, last in tx.jobs.delegations.list_results("root")] == [
            ("outer", outer_goes_on.id)
        ]


def hush(store: Store, *names: str) -> None:
    """Stop jobs as a person does who says ``/stop``."""
    with store.begin() as tx:
        tx.jobs.delegations.stop_reporting_results([tx.jobs.get(name) for name in names])


def test_who_says_stop_does_not_hear_what_became_of_a_task(store: Store) -> None:
    give(store, "task", hears=True)
    end(store, "root")
    begin(store, "task")
    hush(store, "task")
    end(store, "task", CANCELLED)
    assert continuations(store) == []


def test_nor_does_who_says_it_while_the_delegate_goes_on(store: Store) -> None:
    give(store, "outer", hears=True)
    end(store, "root")
    begin(store, "outer")
    give(store, "inner", by="outer", hears=True, depth=2)
    end(store, "outer")
    done(store, "inner")
    (goes_on,) = continuations(store, "outer")
    hush(store, goes_on.id)
    end(store, goes_on.id, CANCELLED)
    assert continuations(store) == []


def test_what_an_operator_cancels_is_reported_for_the_person_still_waits(store: Store) -> None:
    give(store, "task", hears=True)
    end(store, "root")
    begin(store, "task")
    with store.begin() as tx:
        tx.jobs.request_stop("task")
    end(store, "task", CANCELLED)
    assert len(continuations(store)) == 1


@pytest.mark.parametrize(("newer", "begins"), [(None, False), ("newer", True)])
def test_tasks_of_an_answer_that_was_stopped_while_it_was_sent(store: Store, newer: str | None, begins: bool) -> None:
    """A newer message that interrupts comes too late for an answer that is out: what it promised is done."""
    give(store, "task")
    with store.begin() as tx:
        tx.jobs.request_stop("root")
        tx.jobs.update_job("root", merged_into=newer)
    end(store, "root")
    assert (job(store, "task").status is JobStatus.PENDING) is begins
    assert job(store, "task").reason == ("" if begins else STOPPED)


def test_a_task_that_was_stopped_with_its_message_begins_when_that_is_resumed(store: Store) -> None:
    give(store, "task")
    with store.begin() as tx:
        tx.jobs.request_stop("task")
        tx.jobs.close_job("task", JobEnding(status=CANCELLED, reason=STOPPED))
    end(store, "root", CANCELLED)
    with store.begin() as tx:
        tx.jobs.delegations.restore_withheld("root")
    assert (job(store, "task").status, job(store, "task").stop_requested) == (JobStatus.PENDING, False)


def test_a_task_resumed_after_its_failure_was_told_is_told_again(store: Store) -> None:
    give(store, "task", hears=True)
    end(store, "root")
    begin(store, "task")
    end(store, "task", FAILED)
    (first,) = continuations(store)
    done(store, first.id)
    with store.begin() as tx:
        tx.jobs.reopen_job(tx.jobs.get("task"))
    done(store, "task")
    assert len(continuations(store)) == 2


def test_a_task_resumed_before_its_failure_was_told_is_told_once(store: Store) -> None:
    give(store, "task", hears=True)
    end(store, "root")
    begin(store, "task")
    end(store, "task", FAILED)
    with store.begin() as tx:
        tx.jobs.reopen_job(tx.jobs.get("task"))
    done(store, "task")
    assert len(continuations(store)) == 1


def restart(store: Store, name: str) -> str:
    """Restart a job as an operator does."""
    with store.begin() as tx:
        again = tx.jobs.add(
            new_restart(tx.jobs.delegations.find_newest_job(tx.jobs.get(name)), f"{name}-again", tx.now)
        )
        return again.id


def test_of_a_task_that_was_restarted_only_the_restart_is_heard(store: Store) -> None:
    give(store, "task", hears=True)
    give(store, "other", hears=True)
    end(store, "root")
    done(store, "task")
    again = restart(store, "task")
    done(store, "other")
    assert continuations(store) == [], "the restart is waited for"
    done(store, again)
    with store.view() as tx:
        assert [task.id for task, _ in tx.jobs.delegations.list_results("root")] == ["other", again]
        assert tx.jobs.delegations.find_newest_job(tx.jobs.get("task")).id == again
        assert {below.id for below in tx.jobs.delegations.list_descendants(["root"])} > {"task", "other", again}


def test_what_answers_in_the_place_of_a_continuation_is_the_newest(store: Store) -> None:
    give(store, "task", hears=True)
    with store.begin() as tx:
        tx.jobs.add(Job(id="newer", lane=LANE, created_at=tx.now, **PLACE.model_dump()))
    end(store, "root")
    done(store, "task")
    (goes_on,) = continuations(store)
    with store.begin() as tx:
        tx.jobs.update_job(goes_on.id, merged_into="newer")
    with store.view() as tx:
        assert tx.jobs.delegations.find_newest_job(tx.jobs.get(goes_on.id)).id == "newer"


def test_a_delegate_that_could_not_go_on_has_no_result(store: Store) -> None:
    give(store, "outer", hears=True)
    end(store, "root")
    begin(store, "outer")
    give(store, "inner", by="outer", hears=True, depth=2)
    with store.begin() as tx:
        tx.jobs.update_job("outer", answer_id=7)  # that it asks inner
    end(store, "outer")
    done(store, "inner")
    (goes_on,) = continuations(store, "outer")
    begin(store, goes_on.id)
    end(store, goes_on.id, FAILED)
    with store.view() as tx:
        ((task, last),) = tx.jobs.delegations.list_results("root")
    assert (task.id, last.id, last.status) == ("outer", goes_on.id, FAILED)


def test_who_is_heard_by_whom(store: Store) -> None:
    give(store, "heard", hears=True)
    give(store, "posted")
    with store.view() as tx:
        assert tx.jobs.delegations.find_delegator(tx.jobs.get("posted")) is None
        assert tx.jobs.delegations.find_delegator(tx.jobs.get("root")) is None
        delegator = tx.jobs.delegations.find_delegator(tx.jobs.get("heard"))
    assert delegator is not None
    assert delegator.id == "root"
