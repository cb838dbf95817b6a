"""Every account is limited: one notice, the lane goes on, and the answer comes when one recovers.

See docs/decisions.md: retry.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.jobs.steps import PROVIDER_NOTICE, WAITING_NOTICE
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Failure
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("waiting")]

WAITED_AN_HOUR = f"{WAITING_NOTICE} That should be in about 60 minutes."
LONG: dict[str, Any] = {"llm": {"cooldownMinutes": [60]}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    breaker = {"failures": 2, "openSeconds": 1}
    async with running_instance(tmp_path_factory.mktemp("waiting"), llm={"breaker": breaker}) as instance:
        yield instance


async def parked(maestro: Instance, channel: str, count: int = 1) -> None:
    """Return once so many jobs of a channel wait."""
    await maestro.until(
        "SELECT 1 FROM queue WHERE channel = ? AND status = 'waiting' GROUP BY channel HAVING count(*) >= ?",
        channel,
        count,
    )


async def said(client: WebClient, number: int) -> list[str]:
    """Return the next messages as they come."""
    return [str((await client.wait_for("message", patience=30))["content"]) for _ in range(number)]


async def test_one_notice_and_then_the_answer(maestro: Instance) -> None:
    maestro.llm.script("limited once", failure=Failure.limited(1), times=1)
    async with maestro.client("once") as client:
        await client.say("limited once")
        assert await said(client, 2) == [WAITING_NOTICE, "answer to: limited once"]
        await maestro.ended("once", "completed", 2)
        assert len([frame for frame in client.frames if frame["type"] == "message"]) == 2
    assert len(maestro.llm.matching("limited once")) == 2
    [job] = [job for job in maestro.jobs("once") if job["lane"]]
    assert (job["status"], job["run"], job["waits_for"]) == ("completed", 2, None)
    states = maestro.query("SELECT state FROM job_steps WHERE job_id = ? AND step = 'model-1' ORDER BY id", job["id"])
    assert [step["state"] for step in states] == ["waiting", "done"]


async def test_an_outage_is_waited_for_with_one_notice_for_all(maestro: Instance) -> None:
    maestro.llm.script("the outage", failure=Failure.status(503), times=3)
    async with maestro.client("outage") as client:
        for text in ("the outage", "behind it"):
            await client.say(text)
        # Where the circuit closes at once, the message behind is answered before the notice is sent.
        expected = {PROVIDER_NOTICE, "answer to: the outage", "answer to: behind it"}
        assert set(await said(client, 3)) == expected
    job, *_ = [job for job in await maestro.ended("outage", "completed", 3) if job["lane"]]
    errors = maestro.query("SELECT DISTINCT error FROM job_steps WHERE job_id = ? AND error != ''", job["id"])
    assert {row["error"] for row in errors} == {"ProviderUnavailable", "CircuitOpen"}


async def test_all_limited_then_restart_then_recovery(tmp_path: Path) -> None:
    async with running_instance(tmp_path, **LONG) as maestro:
        maestro.llm.script("limited for long", failure=Failure.limited(3), times=1)
        async with maestro.client("restart") as client:
            await client.say("limited for long")
            assert await said(client, 1) == [WAITED_AN_HOUR]
            await parked(maestro, "restart")
        await maestro.restart()
        assert [job["status"] for job in maestro.jobs("restart") if job["lane"]] == ["waiting"]
        maestro.change("UPDATE account_limits SET limited_until = limited_at")
        maestro.change("UPDATE queue SET wake_at = waits_since WHERE status = 'waiting'")
        await maestro.ended("restart", "completed", 2)
    answers = maestro.query("SELECT content FROM messages WHERE role = 'assistant'")
    assert [row["content"] for row in answers] == ["answer to: limited for long"]
    notices = maestro.query("SELECT content FROM deliveries WHERE purpose = 'notice'")
    assert [row["content"] for row in notices] == [WAITED_AN_HOUR]
    assert len(maestro.llm.matching("limited for long")) == 2


async def test_a_new_process_asks_the_provider_that_failed_before_it_started(tmp_path: Path) -> None:
    breaker = {"failures": 2, "openSeconds": 3600}
    async with running_instance(tmp_path, llm={"breaker": breaker}) as maestro:
        maestro.llm.script("until the restart", failure=Failure.status(503), times=2)
        async with maestro.client("anew") as client:
            await client.say("until the restart")
            await parked(maestro, "anew")
            await maestro.restart()
            await maestro.ended("anew", "completed", 2)
    assert len(maestro.llm.matching("until the restart")) == 3


async def test_messages_that_wait_are_answered_in_their_order_with_one_notice_for_all(tmp_path: Path) -> None:
    async with running_instance(tmp_path, **LONG) as maestro:
        maestro.llm.script("the first", failure=Failure.limited(1), times=1)
        async with maestro.client("order") as client:
            for text in ("the first", "the second", "the third"):
                await client.say(text)
            await parked(maestro, "order", 3)
            assert len(maestro.llm.requests) == 1, "an account that is left alone is not asked"
            maestro.change("UPDATE account_limits SET limited_until = limited_at")
            maestro.change("UPDATE queue SET wake_at = waits_since WHERE status = 'waiting'")
            assert await said(client, 4) == [
                WAITED_AN_HOUR,
                *(f"answer to: {text}" for text in ("the first", "the second", "the third")),
            ]


@pytest.mark.parametrize("way", ["/stop", "cancel"])
async def test_a_waiting_job_can_be_stopped(tmp_path: Path, way: str) -> None:
    async with running_instance(tmp_path, **LONG) as maestro:
        maestro.llm.script("never", failure=Failure.limited(1), times=1)
        async with maestro.client("stop") as client:
            await client.say("never")
            await parked(maestro, "stop")
            [job] = [job for job in maestro.jobs("stop") if job["status"] == "waiting"]
            if way == "cancel":
                with maestro.operator() as operator:
                    await operator.jobs.cancel(job["id"], "operator")
            else:
                await client.say(way)
            await maestro.ended("stop", "cancelled")
        assert len(maestro.llm.matching("never")) == 1


async def test_the_workflow_ends_with_the_wait_and_the_next_run_goes_on(maestro: Instance) -> None:
    maestro.llm.script("in two runs", failure=Failure.limited(1), times=1)
    async with maestro.client("runs") as client:
        await client.say("in two runs")
        await said(client, 2)
    [job] = [job for job in await maestro.ended("runs", "completed", 2) if job["lane"]]
    temporal = await maestro.temporal()
    runs: list[str] = []
    async with asyncio.timeout(30):
        while runs != ["COMPLETED", "COMPLETED"]:  # Temporal lists a run a moment after it ended
            found = temporal.list_workflows(f"WorkflowId = '{job['id']}'")
            runs = [run.status.name async for run in found if run.status is not None]
