"""What is to be done about an answer that is being written, and whose answers people may watch."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from maestro.domain.drafts import STOPPED, UNFINISHED, Draft, DraftState, DraftStep, next_draft_step, stopped_text
from maestro.domain.jobs.job import Job, JobKind, JobStatus, is_streamed
from maestro.domain.messages import Address

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PLACE = Address(platform="slack", channel="C1", thread="T1")
RUNNING, WAITING, COMPLETED = JobStatus.RUNNING, JobStatus.WAITING, JobStatus.COMPLETED


def draft(state: DraftState, text: str = "words", revision: int = 2) -> Draft:
    return Draft(job_id="job", number=1, text=text, revision=revision, state=state, begun_at=NOON, updated_at=NOON)


def job(**fields: Any) -> Job:
    told: dict[str, Any] = {"id": "job", "kind": JobKind.MESSAGE, "platform": "slack", "channel": "C1", "inbox_id": 1}
    return Job(**{**told, **fields})


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        (DraftState.WRITTEN, RUNNING, DraftStep.PLACE),
        (DraftState.SENDING, RUNNING, DraftStep.PLACE),
        (DraftState.SHOWN, RUNNING, DraftStep.EDIT),
        (DraftState.TAKEN, RUNNING, DraftStep.NOTHING),
        (DraftState.DROPPED, RUNNING, DraftStep.NOTHING),
        (DraftState.SHOWN, WAITING, DraftStep.NOTHING),
        (DraftState.SENDING, WAITING, DraftStep.NOTHING),
        (DraftState.WRITTEN, JobStatus.CANCELLED, DraftStep.FORGET),
        (DraftState.SENDING, JobStatus.CANCELLED, DraftStep.PLACE),
        (DraftState.SHOWN, JobStatus.CANCELLED, DraftStep.END),
        (DraftState.SHOWN, JobStatus.FAILED, DraftStep.END),
        (DraftState.TAKEN, JobStatus.CANCELLED, DraftStep.FORGET),
        (DraftState.DROPPED, JobStatus.FAILED, DraftStep.FORGET),
        (DraftState.SHOWN, COMPLETED, DraftStep.FORGET),
        (DraftState.SENDING, COMPLETED, DraftStep.FORGET),
    ],
)
def test_what_comes_next(state: DraftState, status: JobStatus, expected: DraftStep) -> None:
    assert next_draft_step(draft(state), status, 1, free=True) is expected


def test_nothing_is_torn_apart_and_nothing_is_said_twice() -> None:
    assert next_draft_step(draft(DraftState.WRITTEN), RUNNING, 0, free=False) is DraftStep.NOTHING
    assert next_draft_step(draft(DraftState.SHOWN), RUNNING, 0, free=False) is DraftStep.EDIT
    assert next_draft_step(draft(DraftState.SHOWN), RUNNING, 2, free=True) is DraftStep.NOTHING
    assert next_draft_step(draft(DraftState.WRITTEN, text=""), RUNNING, 0, free=True) is DraftStep.NOTHING


def test_only_a_person_who_wrote_watches() -> None:
    assert is_streamed(job())
    for other in (
        {"kind": JobKind.CRON, "inbox_id": None},
        {"parent_id": "parent"},
        {"inbox_id": None},
        {"what_if": True},
    ):
        assert not is_streamed(job(**other))


def test_its_message_has_a_key_of_its_own_and_says_no_word_before_it_is_known() -> None:
    asked = draft(DraftState.WRITTEN).build_placeholder(PLACE, "m-1")
    assert (asked.content, asked.reply_to, asked.edits, asked.address) == ("…", "m-1", "", PLACE)
    assert len(asked.key) == 24
    shown = draft(DraftState.SHOWN).model_copy(update={"platform_message_id": "p-1"}).build_edit(PLACE, "words")
    assert (shown.content, shown.edits, shown.key) == ("words", "p-1", asked.key)
    later = draft(DraftState.WRITTEN).model_copy(update={"begun_at": NOON + timedelta(seconds=1)})
    assert later.build_placeholder(PLACE, "m-1").key != asked.key


def test_what_nothing_follows_says_so() -> None:
    assert stopped_text("one two \n") == f"one two{STOPPED}"
    assert set(UNFINISHED) == set(DraftState) - {DraftState.TAKEN, DraftState.DROPPED}
