"""What an operator may change when a job is done again."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from maestro.domain.jobs.job import NO_EDITS, Job, JobEdits, job_edits, task_input
from maestro.domain.messages import MAX_CONTENT_CHARS


def job(edits: JobEdits = NO_EDITS, task: str = "") -> Job:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Job(id="one", platform="web", account="default", channel="c", created_at=at, task=task, edits=edits.text)


def test_a_job_keeps_what_was_changed() -> None:
    edits = JobEdits(agent="ada", model="anthropic/claude-haiku-4-5", prompt="Say it in German.")
    assert job_edits(job(edits)) == edits
    assert edits.any


def test_no_edits_leave_nothing_in_the_row() -> None:
    assert (NO_EDITS.text, NO_EDITS.any, job_edits(job())) == ("", False, NO_EDITS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": "Not A Slug"},
        {"agent": ""},
        {"model": ""},
        {"model": "two words"},
        {"prompt": " \n"},
        {"prompt": "x" * (MAX_CONTENT_CHARS + 1)},
        {"colour": "red"},
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        JobEdits.model_validate(wrong)


def test_a_prompt_is_kept_as_every_store_takes_it() -> None:
    assert JobEdits(prompt="a\0b").prompt == "ab"


def test_a_task_is_told_as_it_was_changed_and_a_message_is_no_task() -> None:
    changed = JobEdits(prompt="Look at the disks.")
    assert task_input(job(task="Look around.")) == "Look around."
    assert task_input(job(changed, task="Look around.")) == "Look at the disks."
    assert task_input(job(changed)) == ""
