"""The process dies in work that no person began: the time of a schedule is answered once, and posted once."""

import asyncio

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from maestro.domain.jobs.job import JobRef
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Cron
from maestro.store.store import Store
from tests.chaos.promise import assert_books_closed, assert_delivered_once, assert_journal_closed
from tests.support.chatting import person
from tests.support.composed import TASK_TIMEOUT
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-background")]

POINTS = [
    *("before enter done", "after enter done", "after take-up done"),
    *("before tags done", "after tags done", "after send"),
]
YEARLY = "0 9 1 1 *"
"""Never while the test runs."""


def planned(evidence: Evidence, channel: str) -> str:
    """Plan something from another process, and return how it is called."""
    new = NewSchedule(agent="helper", name=channel, schedule=YEARLY, prompt=channel, platform="web", channel=channel)
    store = Store.open(evidence.path)
    try:
        with store.begin() as tx:
            return tx.background.schedules.add_schedule(Cron, new, "operator").ref
    finally:
        store.close()


async def begin(maestro: Maestro, ref: str) -> str:
    """Do what Temporal does when the time has come, and return the id of the run."""
    client = await Client.connect(f"127.0.0.1:{maestro.temporal_port}", data_converter=pydantic_data_converter)
    job = JobRef(job_id="", run=1, heartbeat_seconds=3, model_seconds=60, tool_seconds=60, tool_rounds=5, schedule=ref)
    run = f"maestro-{ref}-2027-01-01T09:00:00Z"
    await client.start_workflow("ScheduledWorkflow", job, id=run, task_queue="maestro", task_timeout=TASK_TIMEOUT)
    return run


@pytest.mark.parametrize("point", POINTS)
async def test_a_time_of_a_schedule_is_answered_once(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str
) -> None:
    channel = point.replace(" ", "-")
    ref = planned(evidence, channel)
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with person(maestro.web_port, channel) as somebody:
        await somebody.connected()
        run = await begin(maestro, ref)
        await crash
        job = await evidence.job_ended(run)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(run)))
        assert job["status"] == "completed"
        assert evidence.calls(run, "answer")["answered"] == 1
        assert_delivered_once(evidence, somebody, job, job["said"])
        assert_journal_closed(evidence, job)
        assert_books_closed(evidence, job)
    assert [one["runs"] for one in evidence.rows("SELECT runs FROM cron_jobs WHERE name = ?", channel)] == [1]
    assert len(evidence.rows("SELECT id FROM queue WHERE schedule = ?", ref)) == 1
