"""Schedules in a store: their names and numbers, what a run begun by hand leaves, and what becomes of an agent's."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.agents.edits import AgentChange
from maestro.domain.errors import Conflict, InvalidEdit, NotFound
from maestro.domain.jobs.job import JobEnding, JobKind, JobStatus
from maestro.domain.precedence import Priority
from maestro.domain.schedules.edits import BackfillRequest, NewSchedule, ScheduleChange, ScheduleKind
from maestro.domain.schedules.views import BackfillView, ScheduleState
from tests.support.job_rows import MORNING, JobRows
from tests.support.outside import add_agent


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    opened = JobRows.at(tmp_path)
    yield opened
    opened.store.close()


def plan(rows: JobRows, schedule: str = "every 1h", kind: ScheduleKind = ScheduleKind.CRON, **fields: Any) -> str:
    given = {"agent": "ada", "prompt": "Look.", "platform": "web", "channel": "code", **fields}
    with rows.store.begin() as tx:
        return tx.background.schedules.add_schedule(kind.table, NewSchedule(schedule=schedule, **given), "operator").ref


def change(rows: JobRows, ref: str, **fields: Any) -> None:
    with rows.store.begin() as tx:
        tx.background.schedules.change_schedule(tx.background.schedules.get(ref), ScheduleChange(**fields), "operator")


def run(rows: JobRows, ref: str) -> str:
    with rows.store.begin() as tx:
        return tx.background.runs.run_now(tx.background.schedules.get(ref), "operator")


def backfill(rows: JobRows, ref: str, hours: int, *, preview: bool = False) -> BackfillView:
    wish = BackfillRequest(start=rows.clock.now - timedelta(hours=hours), end=rows.clock.now, preview=preview)
    with rows.store.begin() as tx:
        return tx.background.runs.begin_backfill_runs(
            tx.background.schedules.get(ref), wish, f"maestro-{ref}", "operator"
        )


def test_an_interval_counts_from_when_it_was_written(rows: JobRows) -> None:
    ref = plan(rows)
    rows.clock.go(minutes=10)
    change(rows, ref, prompt="Look again.")
    with rows.store.view() as tx:
        assert tx.background.schedules.build_schedule_view(
            tx.background.schedules.get(ref)
        ).next_run == MORNING + timedelta(hours=1)
    change(rows, ref, schedule="every 2h")
    with rows.store.view() as tx:
        assert tx.background.schedules.build_schedule_view(
            tx.background.schedules.get(ref)
        ).next_run == MORNING + timedelta(hours=2, minutes=10)


def test_a_name_is_an_agents_own_also_after_a_change(rows: JobRows) -> None:
    add_agent(rows, "bob")
    first, second = plan(rows, name="a"), plan(rows, kind=ScheduleKind.HEARTBEAT, name="b")
    of_bob = plan(rows, agent="bob", name="a")
    with pytest.raises(Conflict, match="has a schedule 'a' already"):
        change(rows, second, name="a")
    with pytest.raises(Conflict, match="has a schedule 'a' already"):
        change(rows, of_bob, agent="ada")
    with pytest.raises(NotFound):
        change(rows, first, agent="nobody")
    change(rows, of_bob, agent="ada", name="c")
    change(rows, first, name="")
    with rows.store.view() as tx:
        assert [
            one.name for one in tx.background.schedules.list_schedules_of_agent(tx.agents.get_agent_by_slug("ada"))
        ] == ["b", "Cron Job", "c"]


def test_a_shorter_interval_may_be_allowed(rows: JobRows) -> None:
    with pytest.raises(InvalidEdit, match="at least 30 seconds"):
        plan(rows, "every 10s")
    with rows.store.begin() as tx:
        new = NewSchedule(agent="ada", schedule="every 10s", prompt="x", platform="web", channel="c")
        assert (
            tx.background.schedules.add_schedule(ScheduleKind.CRON.table, new, "operator", timedelta(seconds=5)).ref
            == "cron-1"
        )


def test_a_run_begun_by_hand_is_a_job_of_the_schedule_and_ends_no_reminder(rows: JobRows) -> None:
    ref = plan(rows, "in 20m", thread="t-1")
    job_id = run(rows, ref)
    with rows.store.view() as tx:
        job, planned = tx.jobs.get(job_id), tx.background.schedules.get(ref)
        assert (job.kind, job.status, job.priority, job.lane) == (
            JobKind.CRON,
            JobStatus.PENDING,
            Priority.SCHEDULED,
            None,
        )
        assert (job.task, job.schedule, job.slot, job.thread) == ("Look.", ref, None, "t-1")
        assert (planned.runs, planned.last_job_id, planned.ended_at) == (1, job_id, None)
    with pytest.raises(Conflict, match=job_id):
        run(rows, ref)


def test_each_time_is_made_up_for_once_and_in_its_turn(rows: JobRows) -> None:
    ref = plan(rows, name="hourly")
    begun = backfill(rows, ref, 3)
    assert [one.time for one in begun.times] == [MORNING - timedelta(hours=hours) for hours in (3, 2, 1, 0)]
    assert begun.times[0].job_id == "maestro-cron-1-2026-11-20T05:00:00Z"
    with rows.store.view() as tx:
        jobs = [tx.jobs.get(one.job_id) for one in begun.times]
        assert {(job.lane, job.schedule) for job in jobs} == {("schedule:cron-1", "cron-1")}
        assert [job.turn for job in jobs] == sorted(job.turn or 0 for job in jobs)
        assert tx.background.schedules.get(ref).runs == 4
    rows.clock.go(hours=1)
    with pytest.raises(Conflict, match="is still open"):
        backfill(rows, ref, 4)
    assert backfill(rows, ref, 4, preview=True).count == 1
    with rows.store.begin() as tx:
        for one in begun.times:
            tx.jobs.close_job(one.job_id, JobEnding(status=JobStatus.FAILED))
    again = backfill(rows, ref, 4)
    assert (again.count, [one.ran for one in again.times]) == (1, [True] * 4 + [False])


def test_no_more_than_a_hundred_times_are_made_up_for(rows: JobRows) -> None:
    ref = plan(rows)
    assert backfill(rows, ref, 99, preview=True).count == 100
    with pytest.raises(InvalidEdit, match="more than 100 times"):
        backfill(rows, ref, 100, preview=True)


def test_what_an_archived_agent_does_by_the_clock_rests_and_stays(rows: JobRows) -> None:
    ref = plan(rows)
    with rows.store.begin() as tx:
        tx.agents.change(
            tx.agents.get_agent_by_slug("ada"), AgentChange.model_validate({"status": "archived"}), "operator"
        )
    with rows.store.view() as tx:
        assert (
            tx.background.schedules.build_schedule_view(tx.background.schedules.get(ref)).state
            is ScheduleState.AGENT_PAUSED
        )
    with pytest.raises(Conflict, match="make it active first"):
        run(rows, ref)
    with pytest.raises(Conflict, match="is archived; restore it first"):
        plan(rows, name="other")


def test_a_number_is_never_given_twice(rows: JobRows) -> None:
    ref = plan(rows)
    job_id = run(rows, ref)
    with rows.store.begin() as tx:
        tx.background.schedules.remove_schedule(tx.background.schedules.get(ref), "operator")
    assert plan(rows) == "cron-2"
    with rows.store.view() as tx:
        assert tx.jobs.get(job_id).schedule == "cron-1"
        assert [(one.action, one.subject) for one in tx.system.audit.list_latest_entries(2)] == [
            ("cron.create", "cron-2"),
            ("cron.remove", "cron-1"),
        ]
