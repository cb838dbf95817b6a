"""Jobs without a person: what the model is told, and what of its answer is posted."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maestro.domain.jobs.delegations import SILENT, background_text, remove_silent_lines
from maestro.domain.jobs.job import Job, JobKind, is_background

AMSTERDAM = ZoneInfo("Europe/Amsterdam")
SLOT = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)


def job(kind: JobKind, slot: datetime | None = SLOT, notice: str = "") -> Job:
    return Job(
        id="one",
        kind=kind,
        platform="web",
        account="main",
        channel="here",
        task="Look at the pump.",
        slot=slot,
        notice=notice,
        created_at=SLOT,
    )


@pytest.mark.parametrize(
    ("answer", "posted"),
    [
        ("[SILENT]", ""),
        ("  [silent].\n", ""),
        ("**[SILENT]**", ""),
        ("> [SILENT]", ""),
        ("", ""),
        ("All is well.", "All is well."),
        ("[SILENT]\nAll is well.", "All is well."),
        ("All is well.\n[SILENT]", "All is well."),
        ("I was told to say [SILENT] but there is news.", "I was told to say [SILENT] but there is news."),
        ("one\n[SILENT]\ntwo", "one\ntwo"),
    ],
)
def test_silence_is_a_line_of_its_own(answer: str, posted: str) -> None:
    assert remove_silent_lines(answer) == posted


@given(st.text())
def test_what_does_not_speak_of_silence_is_posted_as_it_is(answer: str) -> None:
    if SILENT not in answer.upper():
        assert remove_silent_lines(answer) == answer.strip()


def test_the_model_is_told_when_it_was_planned_by_the_clock_of_the_schedule() -> None:
    text = background_text(job(JobKind.HEARTBEAT), AMSTERDAM)
    assert text.startswith("Look at the pump.\n\n(This is a heartbeat of yours, planned for Monday 2026-11-23 09:00 (")
    assert "Europe/Amsterdam" in text
    assert SILENT in text


def test_a_cron_is_to_post_and_a_webhook_was_planned_for_no_time() -> None:
    assert SILENT not in background_text(job(JobKind.CRON), AMSTERDAM)
    assert "planned for" not in background_text(job(JobKind.WEBHOOK, slot=None), AMSTERDAM)


@pytest.mark.parametrize("kind", list(JobKind))
def test_what_maestro_itself_says_of_one_is_none(kind: JobKind) -> None:
    assert is_background(job(kind)) is (kind in (JobKind.HEARTBEAT, JobKind.CRON, JobKind.WEBHOOK))
    assert not is_background(job(kind, notice="It was paused."))
