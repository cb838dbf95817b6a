"""A time of a schedule that has come: what makes a job, what is skipped and counted, what a repeated attempt finds."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.closing import ClosingActivities
from activities.schedules import ScheduleActivities, pause_failing
from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import NewAgent
from maestro.domain.errors import NoAgent, WaitReason
from maestro.domain.jobs.flow import CloseStep, ParkStep
from maestro.domain.jobs.job import Job, JobEnding, JobKind, JobStatus, StepRef, Wait
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Cron, Heartbeat, RunAdmission, ScheduleColumns, ScheduledRun
from maestro.domain.settings.jobs import JobSettings, ScheduleSettings
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store
from tests.support.job_rows import Clock
from tests.support.spoken import NoTyping

MADE = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
ROOM = JobSettings(background_concurrency=50)
PAUSE = ScheduleSettings(pause_after_failures=3)


@pytest.fixture
def clock() -> Clock:
    return Clock(MADE)


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    with store.begin() as tx:
        tx.agents.create(NewAgent(slug="ada"), "operator")
    yield store
    store.close()


def plan(store: Store, schedule: str = "every 1m", kind: type[ScheduleColumns] = Heartbeat) -> str:
    new = NewSchedule(agent="ada", schedule=schedule, prompt="Look.", platform="web", channel="here")
    with store.begin() as tx:
        return tx.background.schedules.add_schedule(kind, new, "operator").ref


def enter(store: Store, ref: str, minute: int, jobs: JobSettings = ROOM) -> RunAdmission:
    slot = MADE + timedelta(minutes=minute)
    return ScheduleActivities(store, lambda: PAUSE, lambda: jobs).enter(
        ScheduledRun(job_id=f"{ref}-{minute}", schedule=ref, slot=slot)
    )


def end(store: Store, job_id: str, status: JobStatus) -> None:
    with store.begin() as tx:
        tx.jobs.close_job(job_id, JobEnding(status=status))
        pause_failing(tx, job_id, PAUSE.pause_after_failures)


def row(store: Store, ref: str) -> ScheduleColumns:
    with store.view() as tx:
        found = tx.background.schedules.find(ref)
    assert found is not None
    return found


def change(store: Store, ref: str, **values: object) -> None:
    with store.begin() as tx:
        planned = tx.background.schedules.find(ref)
        for name, value in values.items():
            setattr(planned, name, value)


def job(store: Store, job_id: str) -> Job | None:
    with store.view() as tx:
        return tx.jobs.find(job_id)


def test_a_time_becomes_a_job_and_a_repeated_attempt_finds_it(store: Store) -> None:
    ref = plan(store)
    assert enter(store, ref, 1) == enter(store, ref, 1) == RunAdmission(begun=True)
    made = job(store, f"{ref}-1")
    assert made is not None
    assert (made.kind, made.status, made.task, made.priority) == (JobKind.HEARTBEAT, JobStatus.RUNNING, "Look.", 10)
    assert (made.schedule, made.slot) == (ref, MADE + timedelta(minutes=1))
    assert (row(store, ref).runs, row(store, ref).last_job_id) == (1, f"{ref}-1")
    end(store, f"{ref}-1", JobStatus.COMPLETED)
    assert enter(store, ref, 1) == RunAdmission(begun=False, reason="the job of this time is completed")


def test_while_a_job_is_open_whoever_began_it_the_next_times_are_skipped(store: Store) -> None:
    ref = plan(store)
    enter(store, ref, 1)
    assert not enter(store, ref, 2).begun
    assert not enter(store, ref, 5).begun
    assert not enter(store, ref, 5).begun, "the attempt before died before it could say so"
    assert row(store, ref).skipped == 4
    end(store, f"{ref}-1", JobStatus.COMPLETED)
    assert enter(store, ref, 6).begun
    assert (row(store, ref).skipped, row(store, ref).runs) == (4, 2)


def test_while_tasks_of_its_last_job_are_open_the_next_times_are_skipped(store: Store) -> None:
    ref = plan(store)
    enter(store, ref, 1)
    for job_id, by in (("task", f"{ref}-1"), ("task of it", "task")):
        with store.begin() as tx:
            place = tx.jobs.read(by).address.model_dump()
            tx.jobs.add(Job(id=job_id, parent_id=by, task="count", created_at=tx.now, **place))
    for over in (f"{ref}-1", "task"):
        end(store, over, JobStatus.COMPLETED)
    assert enter(store, ref, 2).reason == "skipped: job task of it of this schedule is not over"
    end(store, "task of it", JobStatus.FAILED)
    assert enter(store, ref, 3).begun


def test_a_script_that_works_does_not_hide_that_what_it_asks_always_fails(store: Store) -> None:
    ref = plan(store)
    for minute in range(1, 4):
        script, asking = f"{ref}-{minute}", f"{ref}-{minute}-asks"
        assert enter(store, ref, minute).begun
        with store.begin() as tx:
            place = tx.jobs.read(script).address.model_dump()
            tx.jobs.add(Job(id=asking, kind=JobKind.HEARTBEAT, schedule=ref, task="?", created_at=tx.now, **place))
        first, last = (script, asking) if minute == 2 else (asking, script)
        for job_id in (first, last):
            end(store, job_id, JobStatus.COMPLETED if job_id == script else JobStatus.FAILED)
    assert row(store, ref).paused_reason == "failed 3 times in a row"


def test_times_that_passed_without_us_are_counted_and_those_of_a_pause_are_not(store: Store, clock: Clock) -> None:
    ref = plan(store)
    enter(store, ref, 1)
    end(store, f"{ref}-1", JobStatus.COMPLETED)
    assert enter(store, ref, 4).begun
    assert row(store, ref).skipped == 2
    end(store, f"{ref}-4", JobStatus.COMPLETED)
    clock.now = MADE + timedelta(minutes=10, seconds=30)
    change(store, ref, updated_at=clock.now)
    assert enter(store, ref, 11).begun
    assert row(store, ref).skipped == 2


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"enabled": False}, "the schedule is paused"),
        ({"paused_reason": "failed 3 times in a row"}, "the schedule is paused"),
        ({"ended_at": MADE}, "the schedule has ended"),
    ],
)
def test_what_is_stopped_makes_no_job(store: Store, values: dict[str, object], reason: str) -> None:
    ref = plan(store)
    change(store, ref, **values)
    assert enter(store, ref, 1) == RunAdmission(begun=False, reason=reason)
    assert job(store, f"{ref}-1") is None
    assert row(store, ref).skipped == 0


def test_nor_does_what_was_deleted_or_whose_agent_is_paused(store: Store) -> None:
    ref = plan(store)
    assert enter(store, "cron-7", 1).reason == enter(store, "nonsense", 1).reason == "the schedule was deleted"
    with store.begin() as tx:
        tx.agents.get_agent_by_slug("ada").status = AgentStatus.PAUSED
    assert enter(store, ref, 1) == RunAdmission(begun=False, reason="the agent ada is paused")


def test_an_agent_that_is_paused_after_the_start_fails_the_job_visibly(store: Store) -> None:
    ref = plan(store)
    enter(store, ref, 1)
    with store.begin() as tx:
        tx.agents.get_agent_by_slug("ada").status = AgentStatus.PAUSED
    with pytest.raises(NoAgent, match="make it active, and resume the job"):
        ScheduleActivities(store, lambda: PAUSE, lambda: ROOM).take_on(StepRef(job_id=f"{ref}-1", step="take-up"))


def test_where_there_is_no_room_the_job_waits_as_a_row(store: Store) -> None:
    first, second = plan(store), plan(store, "every 2m")
    small = JobSettings(background_concurrency=1)
    assert enter(store, first, 1, small).begun
    waiting = enter(store, second, 2, small)
    assert not waiting.begun
    assert "the limit of background jobs is reached" in waiting.reason
    made = job(store, f"{second}-2")
    assert made is not None
    assert made.status is JobStatus.PENDING
    assert enter(store, second, 2, small) == RunAdmission(begun=False, reason="the job of this time is pending")
    assert row(store, second).runs == 1


def test_a_reminder_is_over_with_its_run(store: Store) -> None:
    ref = plan(store, "in 5m", Cron)
    assert enter(store, ref, 5).begun
    assert row(store, ref).ended_at == MADE
    end(store, f"{ref}-5", JobStatus.COMPLETED)
    assert enter(store, ref, 6) == RunAdmission(begun=False, reason="the schedule has ended")


def test_so_many_failures_in_a_row_pause_it_with_one_notice(store: Store) -> None:
    ref = plan(store)
    for minute, status in enumerate([JobStatus.FAILED, JobStatus.FAILED, JobStatus.COMPLETED, JobStatus.CANCELLED]):
        assert enter(store, ref, minute + 1).begun
        end(store, f"{ref}-{minute + 1}", status)
    assert row(store, ref).failures == 0
    for minute in range(5, 8):
        assert enter(store, ref, minute).begun
        end(store, f"{ref}-{minute}", JobStatus.FAILED)
    assert row(store, ref).paused_reason == "failed 3 times in a row"
    assert enter(store, ref, 8) == RunAdmission(begun=False, reason="the schedule is paused")
    with store.view() as tx:
        (notice,) = tx.jobs.list_claimable_jobs(10, tx.now)
        assert "Heartbeat” failed 3 times in a row and is paused now" in tx.jobs.read(notice.id).notice


def test_one_whose_failures_nobody_judged_is_paused_when_its_time_comes(store: Store) -> None:
    ref = plan(store)
    change(store, ref, failures=3)
    assert enter(store, ref, 1) == RunAdmission(begun=False, reason="the schedule is paused")


# Runs that cannot ask a model now


def park(store: Store, job_id: str, wait: Wait, error: str) -> JobStatus:
    model, step = StepRef(job_id=job_id, step="model-1"), ParkStep(job_id=job_id, step="park-1", steps=("model-1",))
    with store.begin() as tx:
        tx.jobs.steps.start_attempt(model, "call_model", 1)
        tx.jobs.steps.suspend_attempt(model, error, "The reason in full.", wait)
        tx.jobs.steps.start_attempt(step, "park_job", 1)
    return ClosingActivities(store, NoTyping(), lambda: None, lambda: PAUSE).park_job(step).status


def fail(store: Store, job_id: str, error: str) -> JobStatus:
    model = StepRef(job_id=job_id, step="model-1")
    step = CloseStep(job_id=job_id, step="close-1", run=1, status=JobStatus.FAILED, error=error)
    with store.begin() as tx:
        tx.jobs.steps.start_attempt(model, "call_model", 1)
        tx.jobs.steps.fail_attempt(model, error, "The reason in full.")
        tx.jobs.steps.start_attempt(step, "close_job", 1)
    return ClosingActivities(store, NoTyping(), lambda: None, lambda: PAUSE).close_job(step).status


def test_a_spent_budget_skips_the_runs_of_a_schedule_and_pauses_nothing(store: Store) -> None:
    ref = plan(store)
    for minute in range(1, PAUSE.pause_after_failures + 3):
        assert enter(store, ref, minute).begun
        wait = Wait(reason=WaitReason.BUDGET, wake_at=MADE + timedelta(hours=14))
        assert park(store, f"{ref}-{minute}", wait, "BudgetExceeded") is JobStatus.DROPPED
    skipped = job(store, f"{ref}-1")
    assert skipped is not None
    assert (skipped.error, skipped.reason) == ("BudgetExceeded", "skipped: The reason in full.")
    assert (row(store, ref).skipped, row(store, ref).failures, row(store, ref).paused_reason) == (5, 0, "")
    with store.view() as tx:
        last = tx.background.schedules.build_schedule_view(row(store, ref)).last_run
    assert last is not None
    assert (last.status, last.reason) == (JobStatus.DROPPED, "skipped: The reason in full.")


def test_an_outage_skips_the_runs_of_a_schedule_and_other_failures_pause_it(store: Store) -> None:
    ref = plan(store)
    for minute in range(1, PAUSE.pause_after_failures + 3):
        assert enter(store, ref, minute).begun
        assert fail(store, f"{ref}-{minute}", "ProviderUnavailable") is JobStatus.DROPPED
    assert (row(store, ref).skipped, row(store, ref).failures) == (5, 0)
    for minute in range(10, 10 + PAUSE.pause_after_failures):
        enter(store, ref, minute)
        assert fail(store, f"{ref}-{minute}", "AuthenticationFailed") is JobStatus.FAILED
    assert row(store, ref).paused_reason == "failed 3 times in a row"


@pytest.mark.parametrize(
    ("schedule", "reason", "minutes", "status"),
    [
        ("every 1h", WaitReason.ACCOUNT, 5, JobStatus.WAITING),
        ("every 1h", WaitReason.PROVIDER, 5, JobStatus.WAITING),
        ("every 1h", WaitReason.PROVIDER, 90, JobStatus.DROPPED),
        ("0 9 * * *", WaitReason.BUDGET, 14 * 60, JobStatus.DROPPED),
        ("in 10m", WaitReason.BUDGET, 14 * 60, JobStatus.WAITING),
    ],
)
def test_a_run_waits_if_no_other_comes_before_it_can_go_on(
    store: Store, clock: Clock, schedule: str, reason: WaitReason, minutes: int, status: JobStatus
) -> None:
    ref = plan(store, schedule, Cron)
    clock.go(minutes=10)
    enter(store, ref, 10)
    assert park(store, f"{ref}-10", Wait(reason=reason, wake_at=clock.now + timedelta(minutes=minutes)), "X") is status
