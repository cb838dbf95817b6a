"""The process dies in the middle of a batch, again and again: each job is begun exactly once, and none is left out."""

import asyncio

import pytest

from maestro.domain.jobs.batches import BatchAction, BatchRequest
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobStatus
from maestro.operations.jobs import BatchOperations
from maestro.store.store import Store
from tests.chaos.promise import assert_books_closed, assert_journal_closed
from tests.support.chatting import person
from tests.support.crashing import is_armed
from tests.support.evidence import Evidence, Row
from tests.support.llm_server import Failure, LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-batches")]

JOBS = 5
DEATHS = 3
PATIENCE = 90.0


async def said_in_vain(maestro: Maestro, evidence: Evidence, llm: LLMServer, channel: str) -> list[str]:
    """Have messages fail, and return their jobs."""
    names = [f"{channel}.{number}" for number in range(JOBS)]
    for name in names:
        llm.script(match=name, failure=Failure.status(400), times=1)
    async with person(maestro.web_port, channel) as somebody:
        for name in names:
            await somebody.say(f"{name} please, @helper", name)
        jobs = await evidence.ended(*names)
    assert {job["status"] for job in jobs} == {"failed"}
    return [job["id"] for job in jobs]


def begin(evidence: Evidence, action: BatchAction, channel: str) -> str:
    """Ask for a batch from another process, and return its id."""
    store = Store.open(evidence.path)
    try:
        wanted = JobFilter(status=(JobStatus.FAILED,), channel=channel)
        return BatchOperations(store).begin(BatchRequest(action=action, filter=wanted), "ada").id
    finally:
        store.close()


async def die_at(maestro: Maestro, point: str, times: int) -> None:
    """Return when the process has died so often, and lives again."""
    for death in range(times):
        if death:
            maestro.begin()
        await maestro.died()
    await maestro.start()
    assert not is_armed(maestro.data), point


async def over(evidence: Evidence, batch: str) -> list[Row]:
    """Return the items of a batch when it has ended, and every job that it began too."""
    sql = (
        "SELECT 1 AS over WHERE NOT EXISTS (SELECT 1 FROM replay_batches "
        "LEFT JOIN replay_items ON batch_id = replay_batches.id "
        "LEFT JOIN queue ON queue.id = began WHERE replay_batches.id = ? "
        "AND (ended_at IS NULL OR queue.status IN ('pending', 'running', 'waiting')))"
    )
    await evidence.found(sql, batch, patience=PATIENCE)
    return evidence.rows("SELECT * FROM replay_items WHERE batch_id = ? ORDER BY place", batch)


@pytest.mark.parametrize("action", [BatchAction.RESUME, BatchAction.RESTART])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_each_job_of_a_batch_is_begun_once(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, when: str, action: BatchAction
) -> None:
    channel = f"batch-{action}-{when}"
    failed = await said_in_vain(maestro, evidence, llm, channel)
    maestro.arm(f"{when} batch item", times=DEATHS)
    dying = asyncio.create_task(die_at(maestro, f"{when} batch item", DEATHS))
    batch = begin(evidence, action, channel)
    await dying
    items = await over(evidence, batch)
    assert [(item["job_id"], item["state"]) for item in items] == [(job_id, "begun") for job_id in failed]
    if action is BatchAction.RESUME:
        assert [item["began"] for item in items] == failed
    else:
        restarts = evidence.rows("SELECT id, restarted_from FROM queue WHERE channel = ? AND run = 1", channel)
        assert {row["id"]: row["restarted_from"] for row in restarts if row["restarted_from"]} == {
            item["began"]: item["job_id"] for item in items
        }
    for item in items:
        assert_begun_and_answered_once(evidence, item, resumed=action is BatchAction.RESUME)
    audited = evidence.rows("SELECT subject FROM audit_log WHERE action = ? ORDER BY id", f"job.{action}")
    assert [row["subject"] for row in audited if row["subject"] in failed] == failed


def assert_begun_and_answered_once(evidence: Evidence, item: Row, *, resumed: bool) -> None:
    """One more run, one answer, sent once, whatever died meanwhile."""
    (job,) = evidence.rows("SELECT * FROM queue WHERE id = ?", item["began"])
    assert (job["status"], job["run"], job["recoveries"]) == ("completed", 2 if resumed else 1, 0)
    assert evidence.calls(job["id"])["answered"] == 1
    assert len(evidence.answers(job["id"])) == 1
    sent = [chunk["state"] for chunk in evidence.deliveries(job["id"]) if chunk["purpose"] == "answer"]
    assert sent
    assert set(sent) <= {"sent", "unconfirmed"}
    assert_journal_closed(evidence, job)
    assert_books_closed(evidence, job)


@pytest.mark.parametrize("point", ["before batch item", "after batch item"])
async def test_each_job_of_a_batch_is_cancelled_once(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    channel = f"cancelled-{point.split()[0]}"
    names = [f"{channel}.{number}" for number in range(3)]
    llm.script(match=f"{channel}.0", delay=PATIENCE)
    async with person(maestro.web_port, channel) as somebody:
        for name in names:
            await somebody.say(f"{name} please, @helper", name)
        await somebody.acknowledged(*names)
        maestro.arm(point)
        dying = asyncio.create_task(die_at(maestro, point, 1))
        store = Store.open(evidence.path)
        try:
            wish = BatchRequest(action=BatchAction.CANCEL, filter=JobFilter(channel=channel))
            batch = BatchOperations(store).begin(wish, "ada").id
        finally:
            store.close()
        await dying
        jobs = await evidence.ended(*names)
    items = await over(evidence, batch)
    assert {item["state"] for item in items} == {"begun"}
    assert {job["status"] for job in jobs} == {"cancelled"}
    assert [evidence.answers(job["id"]) for job in jobs] == [[], [], []]
