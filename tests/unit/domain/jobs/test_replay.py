"""Which jobs may be replayed: a message is answered once (docs/invariants.md: resume)."""

from datetime import UTC, datetime

import pytest

from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, JobKind, JobStatus, job_edits, task_input
from maestro.domain.jobs.replay import (
    ReplayMode,
    build_what_if_input,
    edits_refusal,
    new_restart,
    new_what_if,
    replay_refusal,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def job(name: str, status: JobStatus, lane: str | None = "lane") -> Job:
    return Job(
        id=name, status=status, lane=lane, inbox_id=1, platform="web", account="default", channel="c", created_at=AT
    )


FAILED = job("old", JobStatus.FAILED)


@pytest.mark.parametrize("newest", JobStatus)
def test_a_job_whose_message_a_restart_answers_cannot_be_resumed(newest: JobStatus) -> None:
    reason = replay_refusal(FAILED, job("new", newest), ReplayMode.RESUME)
    assert reason is not None
    assert "job new" in reason


@pytest.mark.parametrize("newest", JobStatus)
def test_a_message_is_not_restarted_while_an_earlier_restart_works_on_it(newest: JobStatus) -> None:
    reason = replay_refusal(FAILED, job("new", newest), ReplayMode.RESTART)
    assert (reason is None) is newest.ended


@pytest.mark.parametrize("mode", ReplayMode)
def test_the_newest_job_of_a_message_may_be_replayed(mode: ReplayMode) -> None:
    assert replay_refusal(FAILED, FAILED, mode) is None


@pytest.mark.parametrize("mode", ReplayMode)
def test_an_open_job_is_not_replayed(mode: ReplayMode) -> None:
    running = job("running", JobStatus.RUNNING)
    assert replay_refusal(running, running, mode) is not None


@pytest.mark.parametrize("status", JobStatus)
def test_a_message_is_not_restarted_while_a_task_works_for_it(status: JobStatus) -> None:
    reason = replay_refusal(FAILED, FAILED, ReplayMode.RESTART, [job("over", JobStatus.FAILED), job("task", status)])
    assert (reason is None) is status.ended
    assert reason is None or "job task, which this job started" in reason


def test_a_control_word_is_never_answered_again() -> None:
    dropped = job("stop", JobStatus.DROPPED, lane=None)
    assert replay_refusal(dropped, dropped, ReplayMode.RESTART) is not None


# What-if


@pytest.mark.parametrize("status", JobStatus)
@pytest.mark.parametrize("newest", JobStatus)
def test_any_ended_job_may_be_asked_what_it_would_answer(status: JobStatus, newest: JobStatus) -> None:
    reason = replay_refusal(job("one", status), job("new", newest), ReplayMode.WHAT_IF)
    assert (reason is None) is status.ended


def test_a_what_if_is_only_ever_finished() -> None:
    asked = new_what_if(FAILED, "what-if-1", AT)
    asked.status = JobStatus.FAILED
    assert replay_refusal(asked, asked, ReplayMode.RESUME) is None
    for mode in (ReplayMode.RESTART, ReplayMode.WHAT_IF):
        assert "what job old would answer" in (replay_refusal(asked, asked, mode) or "")
    asked.status = JobStatus.COMPLETED
    assert "no failed step" in (replay_refusal(asked, asked, ReplayMode.RESUME) or "")


def test_a_what_if_holds_nothing_that_others_wait_for() -> None:
    task = job("task", JobStatus.COMPLETED)
    task.parent_id, task.task, task.schedule, task.agent_id, task.conversation_id = "above", "Do it.", "cron-1", 3, 4
    asked = new_what_if(task, "what-if-1", AT)
    assert (asked.lane, asked.parent_id, asked.schedule, asked.webhook_id) == (None, None, None, None)
    assert (asked.what_if, asked.restarted_from, asked.agent_id, asked.conversation_id) == (True, "task", 3, 4)


def test_a_what_if_reads_what_the_job_was_asked_as_it_is_changed() -> None:
    task = job("task", JobStatus.COMPLETED)
    task.parent_id, task.task, task.depth = "above", "Do it.", 2
    asked = new_what_if(task, "what-if-1", AT, JobEdits(model="m", prompt="Do it twice."))
    asked.agent_id = 9
    read = build_what_if_input(asked, task)
    assert (read.id, read.parent_id, read.depth, read.agent_id) == ("task", "above", 2, 9)
    assert (task_input(read), job_edits(read).model, task_input(task)) == ("Do it twice.", "m", "Do it.")


def test_a_script_has_no_answer_to_look_at() -> None:
    script = job("script", JobStatus.COMPLETED)
    script.kind, script.inbox_id, script.lane = JobKind.HEARTBEAT, None, None
    assert "runs a script" in (replay_refusal(script, script, ReplayMode.WHAT_IF) or "")
    assert "change the script" in (edits_refusal(script, ReplayMode.RESTART, JobEdits(model="m")) or "")


# Edits


def test_only_what_begins_anew_can_be_changed() -> None:
    for mode in ReplayMode:
        assert (edits_refusal(FAILED, mode, JobEdits(model="m")) is None) is (mode is not ReplayMode.RESUME)
        assert edits_refusal(FAILED, mode, NO_EDITS) is None


def test_a_task_keeps_its_agent_and_what_goes_on_with_results_its_text() -> None:
    task = job("task", JobStatus.FAILED)
    task.parent_id, task.task = "above", "Do it."
    assert "restart job above" in (edits_refusal(task, ReplayMode.RESTART, JobEdits(agent="ada")) or "")
    assert edits_refusal(task, ReplayMode.RESTART, JobEdits(model="m", prompt="Do it twice.")) is None
    task.task = ""
    assert "restart job above" in (edits_refusal(task, ReplayMode.RESTART, JobEdits(prompt="Do it twice.")) or "")


def test_a_restart_keeps_its_edits_unless_others_are_given() -> None:
    first = new_restart(FAILED, "second", AT, JobEdits(model="m"))
    assert job_edits(new_restart(first, "third", AT)) == JobEdits(model="m")
    assert job_edits(new_restart(first, "third", AT, JobEdits(prompt="again"))) == JobEdits(prompt="again")
    assert job_edits(new_restart(first, "third", AT, NO_EDITS)) == NO_EDITS
