"""The watch over running work, with a store whose jobs a test stops (docs/decisions.md: control words)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.errors import Stopped
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.middleware.limits import StopGuard, StopMonitor
from tests.support.job_rows import JobRows
from tests.support.llm_requests import request_of, response_of

LOOK = 0.01


class Work:
    """Goes on until it is told to end, and knows whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.cancelled = False

    async def run(self) -> str:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "done"

    async def complete(self, _: LLMRequest) -> LLMResponse:
        return response_of(await self.run())


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def watch(rows: JobRows) -> StopMonitor:
    return StopMonitor(rows.store, lambda: LOOK)


def stop(rows: JobRows, job_id: str) -> None:
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, stop_requested=True)


async def begun(watch: StopMonitor, job_id: str, work: Work) -> asyncio.Task[str]:
    """Begin watched work and wait until it runs."""
    task = asyncio.create_task(watch.run_until_stopped(job_id, work.run()))
    await work.begun.wait()
    return task


async def test_all_works_of_a_stopped_job_are_cancelled_and_those_of_others_go_on(
    rows: JobRows, watch: StopMonitor
) -> None:
    stopped, other = rows.add(), rows.add()
    works = [Work(), Work(), Work()]
    tasks = [await begun(watch, job, work) for job, work in zip((stopped, stopped, other), works, strict=True)]
    await asyncio.to_thread(stop, rows, stopped)
    ended = await asyncio.gather(*tasks[:2], return_exceptions=True)
    assert [type(end) for end in ended] == [Stopped, Stopped]
    assert [work.cancelled for work in works] == [True, True, False]
    works[2].may_end.set()
    assert await tasks[2] == "done"


async def test_work_that_ends_leaves_another_of_its_job_under_watch(rows: JobRows, watch: StopMonitor) -> None:
    job_id, first, second = rows.add(), Work(), Work()
    tasks = [await begun(watch, job_id, work) for work in (first, second)]
    first.may_end.set()
    assert await tasks[0] == "done"
    await asyncio.to_thread(stop, rows, job_id)
    with pytest.raises(Stopped):
        await tasks[1]


async def test_work_is_watched_again_after_the_watch_had_nothing_to_do(rows: JobRows, watch: StopMonitor) -> None:
    for job_id in (rows.add(), rows.add()):
        task = await begun(watch, job_id, Work())
        await asyncio.to_thread(stop, rows, job_id)
        with pytest.raises(Stopped):
            await task


async def test_a_caller_that_is_cancelled_is_not_told_that_a_person_stopped_the_job(
    rows: JobRows, watch: StopMonitor
) -> None:
    work = Work()
    task = await begun(watch, rows.add(), work)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled


async def test_a_failure_of_the_work_passes_unchanged(rows: JobRows, watch: StopMonitor) -> None:
    failure = ValueError("of the work")

    async def fails() -> str:
        raise failure

    with pytest.raises(ValueError, match="of the work") as caught:
        await watch.run_until_stopped(rows.add(), fails())
    assert caught.value is failure


async def test_a_model_call_of_a_stopped_job_ends(rows: JobRows, watch: StopMonitor) -> None:
    job_id, model = rows.add(), Work()
    key = request_of().key.model_copy(update={"job_id": job_id})
    call = asyncio.create_task(StopGuard(model, watch).complete(request_of().model_copy(update={"key": key})))
    await model.begun.wait()
    await asyncio.to_thread(stop, rows, job_id)
    with pytest.raises(Stopped):
        await call
    assert model.cancelled
