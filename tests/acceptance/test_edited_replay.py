"""A job is done again with another agent, model or text, and a preview tells before what it costs."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import pytest_asyncio

from connectors.base import FailureScope, PermanentSend
from maestro.domain.jobs.job import Job, JobEdits, JobKind
from maestro.domain.jobs.replay import ReplayMode, ReplayPreview
from maestro.domain.jobs.views import JobDetail, job_detail
from maestro.domain.messages import Address
from maestro.store.replays import preview_replay
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Failure
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("edited-replay")]

KEY = "a key that makes its holder a user and not the owner"
AGENTS: list[dict[str, Any]] = [
    {"slug": "conductor", "role": "conductor", "systemPrompt": "You are the conductor."},
    {"slug": "ada", "systemPrompt": "You are Ada.", "fallbacks": ["gpt-4o"]},
    {"slug": "vip", "systemPrompt": "Only for some.", "allowUsers": ["web:somebody-else"]},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    folder = tmp_path_factory.mktemp("edited")
    async with running_instance(folder, web={"apiKey": KEY}, agents=AGENTS) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def user(maestro: Instance, channel: str) -> AbstractAsyncContextManager[WebClient]:
    """Connect as somebody who is not an owner."""
    return maestro.client(channel, api_key=KEY)


async def replay(maestro: Instance, job_id: str, mode: ReplayMode, edits: JobEdits | None = None) -> str:
    """Replay as an operator does and return the job that runs now."""
    with maestro.operator() as operator:
        return await operator.jobs.replay(job_id, mode, "ada", edits)


async def restarted(maestro: Instance, job_id: str, edits: JobEdits | None, status: str = "completed") -> JobDetail:
    """Restart a job and return the new one once it has ended so."""
    again = await replay(maestro, job_id, ReplayMode.RESTART, edits)
    await maestro.until("SELECT 1 FROM queue WHERE id = ? AND status = ?", again, status)
    with maestro.operator() as operator, operator.store.view() as tx:
        return job_detail(tx.jobs.lists.read_record(again))


def preview(maestro: Instance, job_id: str, mode: ReplayMode, edits: JobEdits | None = None) -> ReplayPreview:
    with maestro.operator() as operator, operator.store.view() as tx:
        return preview_replay(tx, job_id, mode, edits)


def paid(maestro: Instance, job_id: str) -> int:
    """Return how many answers of a model a job has bought."""
    sql = "SELECT count(*) AS n FROM llm_calls WHERE job_id = ? AND state = 'answered'"
    return int(maestro.query(sql, job_id)[0]["n"])


# A preview is what happens then


async def test_a_resume_after_delivery_failed_pays_nothing_as_foreseen(maestro: Instance, channel: str) -> None:
    maestro.taps.failures[channel].append(PermanentSend("there is no such channel", FailureScope.CHANNEL))
    async with user(maestro, channel) as client:
        await client.say("deliver this in the end")
        [job] = await maestro.ended(channel, "failed")
        seen = preview(maestro, job["id"], ReplayMode.RESUME)
        assert (seen.possible, seen.step, seen.model_calls, seen.more, seen.cost_usd) == (
            True,
            "deliver",
            0,
            False,
            0.0,
        )
        assert set(seen.kept) == {"route", "conversation", "context", "model-1", "tags"}
        before = len(maestro.llm.requests)
        await replay(maestro, job["id"], ReplayMode.RESUME)
        assert (await client.wait_for("message"))["content"] == "answer to: deliver this in the end"
        await maestro.ended(channel, "completed")
    assert len(maestro.llm.requests) == before
    steps = maestro.query("SELECT step FROM job_steps WHERE job_id = ? AND run = 2 ORDER BY id", job["id"])
    assert steps[0]["step"] == seen.step


async def test_a_resume_after_a_model_call_failed_pays_that_call_as_foreseen(maestro: Instance, channel: str) -> None:
    maestro.llm.script("two rounds, please", failure=Failure.status(400), rounds=1, times=1)
    maestro.llm.script("two rounds, please", calls=[("calculate", {"expression": "1+1"})], rounds=0, times=1)
    async with user(maestro, channel) as client:
        await client.say("two rounds, please")
        [job] = await maestro.ended(channel, "failed")
        seen = preview(maestro, job["id"], ReplayMode.RESUME)
        assert (seen.step, seen.model_calls, seen.more) == ("model-2", 1, True)
        assert {"model-1", "tool-1-0"} <= set(seen.kept)
        before = paid(maestro, job["id"])
        await replay(maestro, job["id"], ReplayMode.RESUME)
        await maestro.ended(channel, "completed")
    assert (before, paid(maestro, job["id"])) == (1, 1 + seen.model_calls)
    [tool] = maestro.query("SELECT attempts FROM tool_calls WHERE job_id = ?", job["id"])
    assert tool["attempts"] == 1


async def test_a_restart_pays_at_least_what_was_foreseen_and_tells_of_the_older_answer(
    maestro: Instance, channel: str
) -> None:
    async with user(maestro, channel) as client:
        await client.ask("say it twice")
        [job] = await maestro.ended(channel, "completed")
    seen = preview(maestro, job["id"], ReplayMode.RESTART)
    assert (seen.step, seen.model_calls, seen.more, seen.first_calls) == ("start", 1, True, 1)
    assert [(effect.kind, effect.kept) for effect in seen.effects] == [("send", True), ("send", False)]
    again = await restarted(maestro, job["id"], None)
    assert paid(maestro, again.id) == seen.model_calls
    assert again.cost_usd == pytest.approx(seen.cost_usd)


async def test_what_cannot_be_is_foreseen_too(maestro: Instance, channel: str) -> None:
    maestro.llm.script("a long think about it", delay=60.0, times=1)
    async with user(maestro, channel) as client:
        await client.say("a long think about it")
        await maestro.asked("a long think about it")
        [job] = maestro.jobs(channel)
        for mode in ReplayMode:
            seen = preview(maestro, job["id"], mode)
            assert (seen.possible, "only an ended job" in seen.problem) == (False, True)
        with maestro.operator() as operator:
            await operator.jobs.cancel(job["id"], "ada")
        await maestro.ended(channel, "cancelled")
    assert preview(maestro, job["id"], ReplayMode.RESUME).step == "model-1"


# Edits


async def test_another_agent_answers_in_the_same_conversation(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as client:
        await client.ask("who are you")
        await client.ask("and what do you do")
        [_, job] = await maestro.ended(channel, "completed", 2)
        again = await restarted(maestro, job["id"], JobEdits(agent="ada"))
        assert (await client.wait_for("message"))["content"] == "answer to: and what do you do"
    assert (again.agent, again.route, again.conversation_id) == ("ada", "an operator chose", job["conversation_id"])
    asked = maestro.llm.matching("and what do you do")[-1]
    assert "You are Ada." in asked.texts[0]
    [told] = [text for text in asked.texts if "answer to: who are you" in text]
    assert told != "answer to: who are you", "what the other agent said is told as its words"
    said = maestro.query("SELECT agent_id FROM messages WHERE job_id = ? AND role = 'assistant'", again.id)
    assert said[0]["agent_id"] is not None


async def test_what_the_person_may_counts_for_the_agent_that_an_operator_chose(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as client:
        await client.ask("let me in")
        [job] = await maestro.ended(channel, "completed")
        again = await restarted(maestro, job["id"], JobEdits(agent="vip"), "dropped")
    assert again.reason
    assert paid(maestro, again.id) == 0


async def test_another_model_is_asked_first(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as client:
        await client.ask("with which model")
        [job] = await maestro.ended(channel, "completed")
    again = await restarted(maestro, job["id"], JobEdits(model="gpt-4o"))
    assert [call.model for call in again.calls] == ["gpt-4o"]
    kept = await restarted(maestro, again.id, None)
    assert [call.model for call in kept.calls] == ["gpt-4o"]
    dropped = await restarted(maestro, kept.id, JobEdits())
    assert [call.model for call in dropped.calls] == ["gpt-4o-mini"]
    assert dropped.edits is None


async def test_another_text_is_read_by_the_model_and_the_message_stays(maestro: Instance, channel: str) -> None:
    async with user(maestro, channel) as client:
        await client.ask("what is the wether")
        [job] = await maestro.ended(channel, "completed")
        again = await restarted(maestro, job["id"], JobEdits(prompt="what is the weather"))
        assert (await client.wait_for("message"))["content"] == "answer to: what is the weather"
        await client.ask("thank you")
    assert (again.excerpt, again.edits) == ("what is the wether", JobEdits(prompt="what is the weather"))
    said = maestro.query(
        "SELECT content FROM messages WHERE conversation_id = ? AND NOT superseded ORDER BY id", job["conversation_id"]
    )
    assert [row["content"] for row in said][:2] == ["what is the wether", "answer to: what is the weather"]
    later = maestro.llm.matching("thank you")[-1]
    assert "what is the wether" in later.texts


async def test_a_job_that_no_person_began_is_changed_too(maestro: Instance, channel: str) -> None:
    job_id = background(maestro, channel)
    await maestro.ended(channel, "completed")
    edits = JobEdits(agent="ada", model="gpt-4o", prompt="look at the disks")
    again = await restarted(maestro, job_id, edits)
    asked = maestro.llm.matching("look at the disks")[-1]
    assert "You are Ada." in asked.texts[0]
    assert "look around" not in asked.last_user
    assert (again.agent, again.task, again.calls[0].model) == ("ada", "look around", "gpt-4o")
    back = await restarted(maestro, again.id, JobEdits())
    assert (back.agent, back.calls[0].model) == ("conductor", "gpt-4o-mini")


def background(maestro: Instance, channel: str) -> str:
    """Begin what a program outside might have begun, and return its id."""
    with maestro.operator() as operator, operator.store.begin() as tx:
        agent, place = tx.agents.get_agent_by_slug("conductor"), Address(platform="web", channel=channel)
        job = Job(
            id=f"webhook-{channel}",
            kind=JobKind.WEBHOOK,
            agent_id=agent.id,
            task="look around",
            created_at=tx.now,
            **place.model_dump(),
        )
        return tx.jobs.add(job).id
