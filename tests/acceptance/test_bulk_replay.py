"""Many jobs replayed at once, on a real Temporal server and a model that counts."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from connectors.base import FailureScope, PermanentSend
from maestro.domain.jobs.batch_preview import BatchPreview
from maestro.domain.jobs.batches import IN_A_LANE, BatchAction, BatchRequest, BatchView, batch_view
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobStatus
from maestro.operations.jobs import BatchOperations
from tests.support.instance import Instance, running_instance, until
from tests.support.llm_server import Failure

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("bulk-replay")]

CHANNELS = 6
EACH = 3
MANY = CHANNELS * EACH
LONG = 240.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("bulk")) as instance:
        yield instance


def forecast(maestro: Instance, wish: BatchRequest) -> BatchPreview:
    with maestro.operator() as operator:
        return BatchOperations(operator.store).forecast(wish)


def begin(maestro: Instance, wish: BatchRequest) -> BatchView:
    with maestro.operator() as operator:
        return BatchOperations(operator.store).begin(wish, "ada")


async def seen(maestro: Instance, batch: BatchView, condition: Callable[[BatchView], bool], what: str) -> BatchView:
    """Return the batch as soon as the condition holds for it."""
    with maestro.operator() as operator:

        def view() -> BatchView:
            with operator.store.view() as tx:
                return batch_view(tx.jobs.batches.get(batch.id), tx.jobs.batches.count_items_by_state(batch.id), tx.now)

        await until(lambda: condition(view()), LONG, what=what)
        return view()


async def over(maestro: Instance, batch: BatchView) -> BatchView:
    """Return the batch when nothing of it is left to do."""
    return await seen(maestro, batch, lambda view: view.ended_at is not None and view.open == 0, "the end of the batch")


async def say(maestro: Instance, channel: str, *texts: str) -> None:
    async with maestro.client(channel) as client:
        for text in texts:
            await client.say(text)


async def test_many_failed_jobs_are_resumed_and_each_pays_for_the_call_that_failed(maestro: Instance) -> None:
    maestro.llm.script("resume all", failure=Failure.status(400), times=MANY)
    channels = [f"resumed-{number}" for number in range(CHANNELS)]
    await asyncio.gather(
        *(say(maestro, channel, *(f"resume all {channel} {at}" for at in range(EACH))) for channel in channels)
    )
    sql = "SELECT count(*) AS n FROM queue WHERE channel LIKE 'resumed-%' AND status = 'failed'"
    await until(lambda: maestro.query(sql)[0]["n"] == MANY, LONG, what="the failures")
    wish = BatchRequest(action=BatchAction.RESUME, filter=JobFilter(status=(JobStatus.FAILED,), q="resume all"))
    told = forecast(maestro, wish)
    assert (told.matching, told.possible, told.model_calls) == (MANY, MANY, MANY)
    assert [(step.step, step.count) for step in told.steps] == [("model-1", MANY)]
    assert len(maestro.llm.matching("resume all")) == MANY, "a dry run asks nobody"

    done = await over(maestro, begin(maestro, wish.model_copy(update={"expected": told.matching})))
    assert (done.total, done.begun, done.completed, done.refused, done.failed) == (MANY, MANY, MANY, 0, 0)
    assert len(maestro.llm.matching("resume all")) == 2 * MANY
    for channel in channels:
        jobs = maestro.jobs(channel)
        assert {(job["run"], job["status"]) for job in jobs} == {(2, "completed")}
        answers = maestro.query(
            "SELECT content FROM deliveries WHERE channel = ? AND purpose = 'answer' AND state = 'sent' ORDER BY id",
            channel,
        )
        assert [row["content"] for row in answers] == [f"answer to: resume all {channel} {at}" for at in range(EACH)]


async def test_answers_that_could_not_be_sent_are_sent_for_nothing(maestro: Instance) -> None:
    channels = [f"unsent-{number}" for number in range(5)]
    for channel in channels:
        maestro.taps.failures[channel].append(PermanentSend("there is no such channel", FailureScope.CHANNEL))
        await say(maestro, channel, f"send all {channel}")
    for channel in channels:
        await maestro.ended(channel, "failed")
    wish = BatchRequest(
        action=BatchAction.RESUME, filter=JobFilter(status=(JobStatus.FAILED,), error="PermanentSend", step="deliver")
    )
    told = forecast(maestro, wish)
    assert (told.possible, told.model_calls, told.cost_usd) == (5, 0, 0.0)
    assert [(step.step, step.count) for step in told.steps] == [("deliver", 5)]
    done = await over(maestro, begin(maestro, wish))
    assert done.completed == 5
    assert len(maestro.llm.matching("send all")) == 5, "paid once, the first time"


async def test_who_writes_while_a_batch_works_in_his_channel_is_answered_before_its_end(maestro: Instance) -> None:
    count = 6 * IN_A_LANE
    maestro.llm.script("crowd", failure=Failure.status(400), times=count)
    await say(maestro, "crowded", *(f"crowd {at}" for at in range(count)))
    await maestro.ended("crowded", "failed", count)
    maestro.llm.script("crowd", delay=0.2)
    wish = BatchRequest(action=BatchAction.RESUME, filter=JobFilter(status=(JobStatus.FAILED,), channel="crowded"))
    batch = begin(maestro, wish)
    await seen(maestro, batch, lambda view: view.begun > 0, "the first job of the batch")
    async with maestro.client("crowded") as client:
        await client.say("a person writes")
        sql = "SELECT completed_at FROM queue JOIN inbox ON inbox.id = inbox_id WHERE content = 'a person writes'"
        (answered,) = await maestro.until(f"{sql} AND status = 'completed'")
    await over(maestro, batch)
    later = maestro.query(
        "SELECT id FROM queue WHERE channel = 'crowded' AND completed_at > ?", answered["completed_at"]
    )
    assert len(later) >= count // 2, "most of the batch came after"


async def test_everything_open_is_cancelled_with_a_running_call(maestro: Instance) -> None:
    maestro.llm.script("cancel all", delay=60.0)
    channels = [f"cancelled-{number}" for number in range(4)]
    for channel in channels:
        await say(maestro, channel, *(f"cancel all {channel} {at}" for at in range(2)))
    await maestro.asked("cancel all", 4)
    wish = BatchRequest(action=BatchAction.CANCEL, filter=JobFilter(q="cancel all"))
    assert forecast(maestro, wish).possible == 8
    done = await over(maestro, begin(maestro, wish))
    assert (done.begun, done.otherwise, done.refused) == (8, 8, 0)
    for channel in channels:
        assert [job["status"] for job in maestro.jobs(channel)] == ["cancelled"] * 2
