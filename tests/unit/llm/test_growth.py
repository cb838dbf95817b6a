"""What is kept of an answer while it is written: what people may see, for those whose answers grow, and no longer."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.drafts import MOST_CHARACTERS, Draft
from maestro.domain.errors import StoreBusy
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.calls import ProviderUnavailable
from maestro.domain.llm.prompts import CallKey, LLMRequest, LLMResponse
from maestro.llm.middleware.recorder import DraftStreaming
from maestro.llm.wire import current_listener
from tests.support.job_rows import JobRows
from tests.support.llm_requests import request_of, response_of


class Speaker:
    """A model that says one piece after the other, each once what was said before is kept."""

    def __init__(self, rows: JobRows, job_id: str, *pieces: str) -> None:
        self._rows = rows
        self._job_id = job_id
        self._pieces = pieces
        self.failure: Exception | None = None
        self.kept: list[str] = []

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Say it."""
        hear = current_listener()
        if hear is not None:
            for piece in self._pieces:
                before = await self._draft()
                hear(piece)
                await self._after(before.revision if before is not None else 0)
        if self.failure is not None:
            raise self.failure
        return response_of("".join(self._pieces))

    async def _draft(self) -> Draft | None:
        return await asyncio.to_thread(draft_of, self._rows, self._job_id)

    async def _after(self, revision: int) -> None:
        """Return once more than this revision is kept."""
        async with asyncio.timeout(30):
            while (known := await self._draft()) is None or known.revision == revision:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        self.kept.append(known.text)


def draft_of(rows: JobRows, job_id: str) -> Draft | None:
    with rows.store.view() as tx:
        return tx.deliveries.drafts.find_draft(job_id)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def job_id(rows: JobRows) -> str:
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.RUNNING)
    return job_id


def request_for(job_id: str, every: float = 0.01, number: int = 1) -> LLMRequest:
    key = CallKey(job_id=job_id, number=number)
    return request_of().model_copy(update={"key": key, "shown_every": every})


async def test_what_may_be_seen_is_kept_while_it_is_said(rows: JobRows, job_id: str) -> None:
    speaker = Speaker(rows, job_id, "one", " two [STATE:k] v [/STATE]", " three [MEM")
    await DraftStreaming(speaker, rows.store).complete(request_for(job_id))
    assert speaker.kept == ["one", "one two", "one two three"]


async def test_half_a_character_and_a_zero_stop_nothing(rows: JobRows, job_id: str) -> None:
    speaker = Speaker(rows, job_id, "one \ud83d!", " t\0wo")
    await DraftStreaming(speaker, rows.store).complete(request_for(job_id))
    assert speaker.kept == ["one \ufffd!", "one \ufffd! two"]


async def test_another_attempt_begins_from_nothing(rows: JobRows, job_id: str) -> None:
    broken = Speaker(rows, job_id, "one two three")
    broken.failure = ProviderUnavailable("cut")
    with pytest.raises(ProviderUnavailable):
        await DraftStreaming(broken, rows.store).complete(request_for(job_id))
    again = Speaker(rows, job_id, "uno")
    await DraftStreaming(again, rows.store).complete(request_for(job_id, number=2))
    assert again.kept == ["uno"]
    found = draft_of(rows, job_id)
    assert found is not None
    assert (found.number, found.revision) == (2, 2)


async def test_where_nobody_watches_nobody_listens(rows: JobRows, job_id: str) -> None:
    speaker = Speaker(rows, job_id, "one")
    assert (await DraftStreaming(speaker, rows.store).complete(request_for(job_id, every=0))).content == "one"
    assert speaker.kept == []
    assert draft_of(rows, job_id) is None


async def test_a_store_that_is_busy_costs_the_answer_nothing(
    rows: JobRows, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()
    loop = asyncio.get_running_loop()

    def busy(**_scope: str) -> None:
        loop.call_soon_threadsafe(tried.set)
        raise StoreBusy("somebody else writes")

    class Waiting:
        async def complete(self, _: LLMRequest) -> LLMResponse:
            hear = current_listener()
            assert hear is not None
            hear("one")
            await asyncio.wait_for(tried.wait(), 30)
            return response_of("one")

    monkeypatch.setattr(rows.store, "begin", busy)
    assert (await DraftStreaming(Waiting(), rows.store).complete(request_for(job_id))).content == "one"


def test_a_job_that_ended_writes_no_more(rows: JobRows, job_id: str) -> None:
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.CANCELLED)
        tx.deliveries.drafts.save_draft_text(job_id, 1, "one")
        assert tx.deliveries.drafts.find_draft(job_id) is None


def test_a_job_that_was_removed_writes_no_more(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        tx.deliveries.drafts.save_draft_text("gone", 1, "words")
    assert draft_of(rows, "gone") is None


def test_a_draft_that_the_answer_took_is_written_no_more(rows: JobRows, job_id: str) -> None:
    with rows.store.begin() as tx:
        tx.deliveries.drafts.save_draft_text(job_id, 1, "one")
        tx.deliveries.drafts.hand_over_draft(job_id)
        tx.deliveries.drafts.save_draft_text(job_id, 2, "two")
        found = tx.deliveries.drafts.find_draft(job_id)
    assert found is not None
    assert found.text == "one"


async def test_a_draft_is_never_longer_than_what_is_shown(rows: JobRows, job_id: str) -> None:
    speaker = Speaker(rows, job_id, "x" * (MOST_CHARACTERS - 1), "x" * MOST_CHARACTERS)
    await DraftStreaming(speaker, rows.store).complete(request_for(job_id))
    assert len(speaker.kept[-1]) == MOST_CHARACTERS
