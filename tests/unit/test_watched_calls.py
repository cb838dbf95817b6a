"""Whose model calls may be watched: those of people whose account shows answers as they grow, and no others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.context import ModelRules
from activities.model_calls import LLMActivities
from maestro.domain.jobs.flow import ModelStep
from maestro.domain.jobs.job import JobStatus, StepRef
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from tests.support.job_rows import JobRows
from tests.support.llm_accounts import replay_guard
from tests.support.llm_requests import response_of
from tests.support.spoken import LONGEST_ANSWER, NoTyping, OneTool, Spoken

EVERY = 0.5


class Asked:
    """A model that keeps what it was asked."""

    request: LLMRequest

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer."""
        self.request = request
        return response_of("hello")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def offer(rows: JobRows, platform: str = "web", seconds: float = EVERY) -> None:
    """Let a connector of a platform show answers as they grow."""
    with rows.store.begin() as tx:
        tx.deliveries.drafts.set_edit_interval((platform, "default"), seconds)


async def shown_every(rows: JobRows, *, searched: bool = False, **fields: object) -> float:
    """Return how often the answer to a message may be looked at while it is written."""
    spoken, asked = Spoken(rows), Asked()
    job_id = spoken.prepared("hi")
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.RUNNING, **fields)
        tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step="model-1"), "call_model", 1)
    rules = ModelRules(lambda _: 8_192, OneTool(), LONGEST_ANSWER, scans_answers=searched)
    step = ModelStep(job_id=job_id, step="model-1", number=1)
    await LLMActivities(rows.store, replay_guard(rows.store, asked), NoTyping(), lambda: rules).call_model(step)
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.COMPLETED)
    return asked.request.shown_every


async def test_nobody_watches_unless_the_account_says_so(rows: JobRows) -> None:
    assert await shown_every(rows) == 0
    offer(rows, "slack")
    assert await shown_every(rows) == 0


async def test_an_account_says_how_often(rows: JobRows) -> None:
    offer(rows)
    assert await shown_every(rows) == EVERY
    offer(rows, seconds=0)
    assert await shown_every(rows) == 0


async def test_what_is_searched_for_secrets_is_not_seen_before(rows: JobRows) -> None:
    offer(rows)
    assert await shown_every(rows, searched=True) == 0


async def test_a_what_if_is_watched_by_nobody(rows: JobRows) -> None:
    offer(rows)
    assert await shown_every(rows, what_if=True) == 0
