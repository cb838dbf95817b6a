"""Which jobs may be replayed: a message is answered once (design invariant 4)."""

from datetime import UTC, datetime

import pytest

from maestro.domain.jobs.job import Job, JobStatus
from maestro.domain.jobs.replay import ReplayMode, refusal


def job(name: str, status: JobStatus, lane: str | None = "lane") -> Job:
    return Job(
        id=name,
        status=status,
        lane=lane,
        inbox_id=1,
        platform="web",
        account="default",
        channel="c",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


FAILED = job("old", JobStatus.FAILED)


@pytest.mark.parametrize("newest", JobStatus)
def test_a_job_whose_message_a_restart_answers_cannot_be_resumed(newest: JobStatus) -> None:
    reason = refusal(FAILED, job("new", newest), ReplayMode.RESUME)
    assert reason is not None
    assert "job new" in reason


@pytest.mark.parametrize("newest", JobStatus)
def test_a_message_is_not_restarted_while_an_earlier_restart_works_on_it(newest: JobStatus) -> None:
    reason = refusal(FAILED, job("new", newest), ReplayMode.RESTART)
    assert (reason is None) is newest.ended


@pytest.mark.parametrize("mode", ReplayMode)
def test_the_newest_job_of_a_message_may_be_replayed(mode: ReplayMode) -> None:
    assert refusal(FAILED, FAILED, mode) is None


@pytest.mark.parametrize("mode", ReplayMode)
def test_an_open_job_is_not_replayed(mode: ReplayMode) -> None:
    running = job("running", JobStatus.RUNNING)
    assert refusal(running, running, mode) is not None


@pytest.mark.parametrize("status", JobStatus)
def test_a_message_is_not_restarted_while_a_task_works_for_it(status: JobStatus) -> None:
    reason = refusal(FAILED, FAILED, ReplayMode.RESTART, [job("over", JobStatus.FAILED), job("task", status)])
    assert (reason is None) is status.ended
    assert reason is None or "job task, which came of it" in reason


def test_a_control_word_is_never_answered_again() -> None:
    dropped = job("stop", JobStatus.DROPPED, lane=None)
    assert refusal(dropped, dropped, ReplayMode.RESTART) is not None
