"""Sends whose outcome is in doubt, jobs closed in the middle of one, and answers that are none."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from maestro.domain.jobs.job import CANCELLED_NOTICE, FAILURE_NOTICE
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.messages import OutgoingMessage
from maestro.llm.middleware.request_changes import GUIDANCE_WITH_TOOLS
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Failure
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("doubt")]

LONG_ANSWER = "\n\n".join(f"paragraph {number} " + "word " * 2_000 for number in range(10))
"""Four chunks on the web connector."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("doubt")) as instance:
        yield instance


class Pause:
    """Holds a channel's sends between the platform's taking a chunk and its receipt."""

    def __init__(self, maestro: Instance, channel: str) -> None:
        self.taken = asyncio.Event()
        self.go_on = asyncio.Event()
        maestro.taps.after[channel] = self._hold

    async def _hold(self, _: OutgoingMessage) -> None:
        self.taken.set()
        await self.go_on.wait()


async def all_messages(client: WebClient) -> list[str]:
    """Return what the client has been shown so far."""
    await client.send({"type": "ping"})
    shown: list[str] = []
    while (frame := await client.next())["type"] != "pong":
        if frame["type"] == "message":
            shown.append(frame["content"])
    return shown


async def test_a_job_closed_between_two_chunks_sends_no_more_and_keeps_its_receipt(maestro: Instance) -> None:
    maestro.llm.script("tell me everything", reply=LONG_ANSWER)
    pause = Pause(maestro, "closed")
    temporal = await maestro.temporal()
    async with maestro.client("closed") as client:
        await client.say("tell me everything")
        await pause.taken.wait()
        [job] = maestro.jobs("closed")
        await temporal.get_workflow_handle(job["id"]).terminate("by hand")
        await maestro.ended("closed", "cancelled")
        pause.go_on.set()
        del maestro.taps.after["closed"]
        await maestro.until("SELECT 1 FROM deliveries WHERE job_id = ? AND state = 'sent'", job["id"])
        await client.say("and now?")
        await maestro.ended("closed", "completed")
        states = maestro.query("SELECT state FROM deliveries WHERE job_id = ? ORDER BY seq", job["id"])
        assert [row["state"] for row in states] == ["sent", "abandoned", "abandoned", "abandoned"]
        with maestro.operator() as operator:
            await operator.jobs.replay(job["id"], ReplayMode.RESUME, "test")
        await maestro.ended("closed", "completed", 2)
    sent = [message.content for message in maestro.taps.sent if message.address.channel == "closed"]
    assert len(sent) == len(set(sent)) == 6
    assert CANCELLED_NOTICE in sent


async def test_a_chunk_in_doubt_is_shown_once(maestro: Instance) -> None:
    pause = Pause(maestro, "doubtful")
    async with maestro.client("doubtful") as client:
        await client.say("is it there?")
        assert (await client.wait_for("message"))["content"] == "answer to: is it there?"
        await pause.taken.wait()
        [job] = maestro.jobs("doubtful")
        with maestro.operator() as operator:
            await operator.jobs.cancel(job["id"], "test")
            pause.go_on.set()
            [ended] = await maestro.until(
                "SELECT status FROM queue WHERE id = ? AND completed_at IS NOT NULL", job["id"]
            )
            if ended["status"] == "cancelled":
                await operator.jobs.replay(job["id"], ReplayMode.RESUME, "test")
                await maestro.ended("doubtful", "completed")
        assert await all_messages(client) == []
    [row] = maestro.query("SELECT id, state FROM deliveries WHERE job_id = ?", job["id"])
    assert row["state"] == "sent"


async def test_an_empty_answer_is_asked_for_again_and_never_sent(maestro: Instance) -> None:
    maestro.llm.script("say nothing", failure=Failure.empty_content(), times=1)
    maestro.llm.script(GUIDANCE_WITH_TOOLS, reply="something after all", times=1)
    async with maestro.client("empty") as client:
        assert await client.ask("say nothing") == "something after all"
    [job] = await maestro.ended("empty", "completed")
    calls = maestro.query("SELECT state, error FROM llm_calls WHERE job_id = ? ORDER BY attempt", job["id"])
    assert [tuple(call) for call in calls] == [("failed", "EmptyResponse"), ("answered", "")]


async def test_a_model_that_stays_silent_fails_the_job_with_one_notice(maestro: Instance) -> None:
    for text in ("always silent", GUIDANCE_WITH_TOOLS):
        maestro.llm.script(text, failure=Failure.empty_content(), times=1)
    async with maestro.client("silent") as client:
        assert await client.ask("always silent") == FAILURE_NOTICE
        [job] = await maestro.ended("silent", "failed")
        assert job["error"] == "EmptyResponse"
        calls = maestro.query("SELECT error FROM llm_calls WHERE job_id = ?", job["id"])
        assert [call["error"] for call in calls] == ["EmptyResponse"] * 2, "asked once more, and not a third time"
        assert await client.ask("go on") == "answer to: go on"


async def test_what_was_mended_takes_effect_on_resume(tmp_path: Path) -> None:
    wrong = {"slug": "conductor", "role": "conductor", "model": "openai/gpt-wrong"}
    async with running_instance(tmp_path, agents=[wrong]) as maestro:
        maestro.llm.script("which model", failure=Failure.status(404), times=1)
        async with maestro.client("mended") as client:
            assert await client.ask("which model") == FAILURE_NOTICE
            [job] = await maestro.ended("mended", "failed")
        await maestro.restart(agents=[{**wrong, "model": "openai/gpt-right"}])
        with maestro.operator() as operator:
            await operator.jobs.replay(job["id"], ReplayMode.RESUME, "test")
        await maestro.ended("mended", "completed")
        asked = [request.body["model"] for request in maestro.llm.matching("which model")]
    assert asked == ["gpt-wrong", "gpt-right"]
