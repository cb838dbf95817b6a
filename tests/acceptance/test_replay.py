"""What an operator does with a job: resume, restart and cancel (docs/invariants.md: resume)."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio

from connectors.base import FailureScope, NotDispatched, PermanentSend
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.jobs.job import CANCELLED_NOTICE, FAILURE_NOTICE
from maestro.domain.jobs.replay import ReplayMode
from tests.support.instance import Instance, running_instance, until
from tests.support.llm_server import Failure
from tests.support.postgresql import store_environment
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("replay")]

ROOT = Path(__file__).parents[2]
KEY = "a key that makes its holder a user and not the owner"
READ_ONLY = "announcements"
LONG = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    binding = {"platform": "web", "channel": READ_ONLY, "agent": "conductor", "permissions": "read_only"}
    async with running_instance(tmp_path_factory.mktemp("replay"), web={"apiKey": KEY}, channels=[binding]) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def user(maestro: Instance, channel: str) -> AbstractAsyncContextManager[WebClient]:
    """Connect as somebody who is not an owner."""
    return maestro.client(channel, api_key=KEY)


async def told(client: WebClient) -> str:
    """Return the text of the next message to the person."""
    return str((await client.wait_for("message"))["content"])


async def replay(maestro: Instance, job_id: str, mode: ReplayMode = ReplayMode.RESUME) -> str:
    """Replay as an operator does and return the job that runs now."""
    with maestro.operator() as operator:
        return await operator.jobs.replay(job_id, mode, "ada")


async def cancel(maestro: Instance, job_id: str) -> None:
    """Cancel as an operator does."""
    with maestro.operator() as operator:
        await operator.jobs.cancel(job_id, "ada")


async def command(maestro: Instance, *arguments: str) -> tuple[int, str]:
    """Run ``maestro`` as a process of its own; return its exit code and all that it printed."""
    start = "from maestro.cli.main import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", start, *arguments, "--config", str(maestro.config_file)),
        cwd=ROOT,
        env={**os.environ, **store_environment(maestro.data_dir / "maestro.db")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, output.decode()


async def job_that_could_not_be_sent(maestro: Instance, client: WebClient, text: str) -> str:
    """Have a message answered whose answer the platform refuses, and return the id of its job."""
    maestro.taps.failures[client.channel].append(PermanentSend("there is no such channel", FailureScope.CHANNEL))
    await client.say(text)
    [job] = await maestro.ended(client.channel, "failed")
    assert (job["error"], job["reason"]) == ("PermanentSend", "there is no such channel")
    return str(job["id"])


# Resume


async def test_a_failed_send_is_resumed_without_asking_the_model_again(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as client:
        job_id = await job_that_could_not_be_sent(maestro, client, "deliver this")
        assert await replay(maestro, job_id) == job_id
        assert (await client.wait_for("message"))["content"] == "answer to: deliver this"
        [job] = await maestro.ended(channel, "completed")
    assert (job["run"], job["error"], job["reason"]) == (2, "", "")
    assert len(maestro.llm.matching("deliver this")) == 1
    steps = maestro.query("SELECT run, state FROM job_steps WHERE job_id = ? AND step = 'deliver' ORDER BY id", job_id)
    assert [tuple(step) for step in steps] == [(1, "failed"), (2, "done")]
    assert len(maestro.query("SELECT 1 FROM job_steps WHERE job_id = ? AND step = 'model-1'", job_id)) == 1
    [entry] = maestro.query("SELECT actor, action FROM audit_log WHERE subject = ?", job_id)
    assert tuple(entry) == ("ada", "job.resume")


async def test_the_command_line_resumes_a_failed_send(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as client:
        job_id = await job_that_could_not_be_sent(maestro, client, "deliver this by command")
        code, output = await command(maestro, "jobs", "replay", job_id, "--wait")
        assert (code, "completed" in output) == (0, True), output
        assert (await client.wait_for("message"))["content"] == "answer to: deliver this by command"
    assert len(maestro.llm.matching("deliver this by command")) == 1
    code, output = await command(maestro, "jobs", "replay", job_id)
    assert code == 1
    assert "there is no failed step to resume" in output


async def test_a_platform_that_comes_back_needs_no_operator(maestro: Instance, channel: str) -> None:
    maestro.taps.failures[channel].append(NotDispatched("not connected"))
    async with user(maestro, channel) as client:
        assert await client.ask("is anybody there", patience=30) == "answer to: is anybody there"
    [job] = await maestro.ended(channel, "completed")
    [sent] = maestro.query("SELECT state, attempts FROM deliveries WHERE job_id = ?", job["id"])
    assert tuple(sent) == ("sent", 2)
    assert len(maestro.llm.matching("is anybody there")) == 1


async def test_a_failed_model_call_is_resumed_at_the_call(maestro: Instance, channel: str) -> None:
    maestro.llm.script("refused at first", failure=Failure.status(400), times=1)
    async with user(maestro, channel) as client:
        await client.say("refused at first")
        assert (await client.wait_for("message"))["content"] == FAILURE_NOTICE
        [job] = await maestro.ended(channel, "failed")
        await replay(maestro, job["id"])
        assert (await client.wait_for("message"))["content"] == "answer to: refused at first"
    await maestro.ended(channel, "completed")
    steps = maestro.query("SELECT step FROM job_steps WHERE job_id = ? AND run = 2 ORDER BY id", job["id"])
    assert [step["step"] for step in steps] == ["model-1", "tags", "deliver"]


async def test_a_message_that_a_restart_has_answered_is_not_answered_by_a_resume_too(
    maestro: Instance, channel: str
) -> None:
    maestro.llm.script("fails, then restarted", failure=Failure.status(400), times=1)
    async with user(maestro, channel) as client:
        await client.say("fails, then restarted")
        assert (await client.wait_for("message"))["content"] == FAILURE_NOTICE
        [job] = await maestro.ended(channel, "failed")
        newer = await replay(maestro, job["id"], ReplayMode.RESTART)
        assert (await client.wait_for("message"))["content"] == "answer to: fails, then restarted"
        with pytest.raises(Conflict, match=newer):
            await replay(maestro, job["id"])
        await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'completed'", newer)
        third = await replay(maestro, job["id"], ReplayMode.RESTART)
        assert (await client.wait_for("message"))["content"] == "answer to: fails, then restarted"
        await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'completed'", third)
    said = maestro.query("SELECT superseded FROM messages WHERE job_id IN (?, ?) ORDER BY id", newer, third)
    assert [row["superseded"] for row in said] == [1, 0]


async def test_typing_shows_again_when_a_job_is_resumed(maestro: Instance, channel: str) -> None:
    maestro.llm.script("type once more", delay=0.5)
    maestro.llm.script("type once more", failure=Failure.status(400), times=1)
    async with user(maestro, channel) as client:
        await client.say("type once more")
        assert (await client.wait_for("message"))["content"] == FAILURE_NOTICE
        [job] = await maestro.ended(channel, "failed")
        before = [where for where, _ in maestro.taps.typed].count(channel)
        await replay(maestro, job["id"])
        assert (await client.wait_for("message"))["content"] == "answer to: type once more"
    assert [where for where, _ in maestro.taps.typed].count(channel) > before


# Restart


async def test_a_restart_answers_again_and_the_older_answer_is_superseded(maestro: Instance, channel: str) -> None:
    maestro.llm.script("a poor question", reply="a better answer")
    maestro.llm.script("a poor question", reply="a poor answer", times=1)  # the newest script serves first
    async with user(maestro, channel) as client:
        assert await client.ask("a poor question") == "a poor answer"
        [first] = await maestro.ended(channel, "completed")
        second = await replay(maestro, first["id"], ReplayMode.RESTART)
        assert second != first["id"]
        assert (await client.wait_for("message"))["content"] == "a better answer"
        await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'completed'", second)
        await client.ask("what was said before")
    [job] = maestro.query("SELECT restarted_from, inbox_id, run FROM queue WHERE id = ?", second)
    assert tuple(job) == (first["id"], first["inbox_id"], 1)
    said = maestro.query(
        "SELECT role, superseded FROM messages WHERE job_id IN (?, ?) ORDER BY id", first["id"], second
    )
    assert [tuple(row) for row in said] == [("user", 0), ("assistant", 1), ("assistant", 0)]
    asked, again = maestro.llm.matching("a poor question")
    assert again.texts == asked.texts
    [later] = maestro.llm.matching("what was said before")
    assert later.texts[1:] == ["a poor question", "a better answer", "what was said before"]


async def test_a_dropped_job_can_be_restarted(maestro: Instance) -> None:
    async with user(maestro, READ_ONLY) as client:
        await client.say("may I speak")
        [dropped] = await maestro.ended(READ_ONLY, "dropped")
        assert dropped["reason"] == "the channel's permission is read_only"
        with pytest.raises(Conflict):
            await replay(maestro, dropped["id"], ReplayMode.RESUME)
        assert maestro.llm.matching("may I speak") == []
        maestro.change("UPDATE agent_channels SET permission = 'full' WHERE channel = ?", READ_ONLY)
        second = await replay(maestro, dropped["id"], ReplayMode.RESTART)
        assert (await client.wait_for("message"))["content"] == "answer to: may I speak"
    await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = 'completed'", second)
    [kept] = maestro.query("SELECT status FROM queue WHERE id = ?", dropped["id"])
    assert kept["status"] == "dropped"


async def test_a_message_that_found_no_agent_is_answered_by_a_restart_once_there_is_one(
    maestro: Instance, channel: str
) -> None:
    pause = "UPDATE agents SET status = ? WHERE slug = 'conductor'"
    async with user(maestro, channel) as client:
        maestro.change(pause, "paused")
        await client.say("is nobody on duty")
        [dropped] = await maestro.ended(channel, "dropped")
        maestro.change(pause, "active")
        assert dropped["reason"] == "there is no active conductor"
        await replay(maestro, dropped["id"], ReplayMode.RESTART)
        assert (await client.wait_for("message"))["content"] == "answer to: is nobody on duty"


# Cancel


async def test_a_running_job_cannot_be_replayed_but_cancelled(maestro: Instance, channel: str) -> None:
    maestro.llm.script("a long think", delay=LONG, times=1)
    async with user(maestro, channel) as client:
        await client.say("a long think")
        await client.say("after the long think")
        await maestro.asked("a long think")
        [running, _] = maestro.jobs(channel)
        for mode in ReplayMode:
            with pytest.raises(Conflict, match="only an ended job"):
                await replay(maestro, running["id"], mode)
        await cancel(maestro, running["id"])
        # The notice is a job without a lane: a model that answers at once may be as quick as it is.
        assert {await told(client), await told(client)} == {CANCELLED_NOTICE, "answer to: after the long think"}
    await maestro.ended(channel, "cancelled")
    assert maestro.llm.matching("a long think")[0].outcome == "gone"
    with pytest.raises(Conflict, match="nothing to cancel"):
        await cancel(maestro, running["id"])


async def test_a_cancelled_job_can_be_resumed(maestro: Instance, channel: str) -> None:
    maestro.llm.script("changed my mind", delay=LONG, times=1)
    async with user(maestro, channel) as client:
        await client.say("changed my mind")
        await maestro.asked("changed my mind")
        await cancel(maestro, maestro.jobs(channel)[0]["id"])
        [job] = await maestro.ended(channel, "cancelled")
        assert await told(client) == CANCELLED_NOTICE
        await replay(maestro, job["id"])
        assert await told(client) == "answer to: changed my mind"
    await maestro.ended(channel, "completed")
    states = maestro.query("SELECT state FROM llm_calls WHERE job_id = ? ORDER BY attempt", job["id"])
    assert [row["state"] for row in states] == ["interrupted", "answered"]


async def test_a_job_that_waits_its_turn_is_cancelled(maestro: Instance, channel: str) -> None:
    maestro.llm.script("first in line", delay=1.0)
    async with user(maestro, channel) as client:
        for text in ("first in line", "never said", "third in line"):
            await client.say(text)
        await maestro.asked("first in line")
        await cancel(maestro, maestro.jobs(channel)[1]["id"])
        spoken = [await told(client) for _ in range(3)]
    assert CANCELLED_NOTICE in spoken
    assert [text for text in spoken if text != CANCELLED_NOTICE] == [
        "answer to: first in line",
        "answer to: third in line",
    ]
    assert maestro.llm.matching("never said") == []
    await maestro.ended(channel, "completed", 2)
    assert [job["status"] for job in maestro.jobs(channel)] == ["completed", "cancelled", "completed"]


async def test_a_job_that_waits_for_its_next_attempt_is_cancelled(maestro: Instance, channel: str) -> None:
    maestro.llm.script("limited", failure=Failure.status(503, {"retry-after": "60"}), times=1)
    async with user(maestro, channel) as client:
        await client.say("limited")
        await client.say("no longer")
        await maestro.asked("limited")
        waiting = maestro.jobs(channel)[0]["id"]
        sql = "SELECT 1 FROM job_steps WHERE job_id = ? AND step = 'model-1' AND state = 'failed'"
        await until(lambda: bool(maestro.query(sql, waiting)), what="the failed attempt")
        await cancel(maestro, waiting)
        # The notice is a job without a lane: a model that answers at once may be as quick as it is.
        assert {await told(client), await told(client)} == {CANCELLED_NOTICE, "answer to: no longer"}
    await maestro.ended(channel, "cancelled")


async def test_nobody_can_replay_or_cancel_what_does_not_exist(maestro: Instance) -> None:
    with pytest.raises(NotFound):
        await replay(maestro, "message-unknown")
    with pytest.raises(NotFound):
        await cancel(maestro, "message-unknown")
    code, output = await command(maestro, "jobs", "cancel", "message-unknown")
    assert (code, output.count("\n")) == (1, 1)
