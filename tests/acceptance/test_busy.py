"""Messages that come while their agent is busy: collected into one turn, or interrupting it (decision 15)."""

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from maestro.domain.jobs import FAILURE_NOTICE
from maestro.domain.replay import ReplayMode
from tests.support.instance import Instance, Row, running_instance
from tests.support.llm_server import Failure
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("message-flow")]

STOPPED = "Stopped."
HASTY = ("hasty", "too-late", "waits-for-someone", "changed-mind")
"""Channels in which a newer message interrupts."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    channels = [
        *({"platform": "web", "channel": name, "agent": "conductor", "busy": "interrupt"} for name in HASTY),
        {"platform": "web", "channel": "patient", "agent": "conductor", "busy": "queue"},
    ]
    folder, routing = tmp_path_factory.mktemp("busy"), {"busy": "collect"}
    async with running_instance(folder, routing=routing, channels=channels) as instance:
        yield instance


@pytest.fixture(autouse=True)
def scripted(maestro: Instance) -> None:
    maestro.llm.reset()


def sent(maestro: Instance, channel: str) -> list[str]:
    """Return everything that was sent to a channel, notices first."""
    rows = maestro.query("SELECT content, state FROM deliveries WHERE channel = ? ORDER BY purpose DESC, id", channel)
    assert {row["state"] for row in rows} == {"sent"}
    return [row["content"] for row in rows]


async def hold(maestro: Instance, client: WebClient, text: str) -> None:
    """Say something that the model never answers, and return when it has been asked."""
    maestro.llm.script(text, failure=Failure.silence())
    await client.say(text, client_id=text)
    await maestro.asked(text)


def by_message(maestro: Instance, channel: str) -> Mapping[str, Row]:
    """Return the jobs of a channel by what was said."""
    rows = maestro.query(
        "SELECT queue.*, inbox.content FROM queue JOIN inbox ON inbox.id = inbox_id WHERE queue.channel = ?", channel
    )
    return {row["content"]: row for row in rows}


def said(maestro: Instance, channel: str) -> list[str]:
    """Return what the conversation of a channel holds, in order, superseded answers left out."""
    rows = maestro.query(
        "SELECT content FROM messages JOIN conversations ON conversations.id = conversation_id "
        "WHERE channel = ? AND NOT superseded ORDER BY messages.id",
        channel,
    )
    return [row["content"] for row in rows]


async def test_what_waits_is_answered_together_once(maestro: Instance) -> None:
    async with maestro.client("talkative") as client:
        await hold(maestro, client, "hold the lane")
        for text in ("one", "two", "three"):
            await client.say(text, client_id=text)
        await client.say("/stop")
        replies = [await client.wait_for("message") for _ in range(2)]
    assert [
        (frame["content"], frame["replyTo"].rpartition(":")[2]) for frame in replies if frame["content"] != STOPPED
    ] == [("answer to: three", "three")]
    await maestro.ended("talkative", "completed", 2)
    jobs = by_message(maestro, "talkative")
    assert [jobs[text]["status"] for text in ("hold the lane", "one", "two", "three")] == [
        *("cancelled", "completed", "merged", "merged")
    ]
    host = jobs["one"]["id"]
    assert {jobs[text]["merged_into"] for text in ("two", "three")} == {host}
    [request] = maestro.llm.matching("three")
    assert request.texts[1:] == ["hold the lane", "one", "two", "three"]
    assert sent(maestro, "talkative") == [STOPPED, "answer to: three"]
    assert said(maestro, "talkative") == ["hold the lane", "one", "two", "three", "answer to: three"]


async def test_a_control_word_is_not_collected(maestro: Instance) -> None:
    async with maestro.client("controlled") as client:
        await hold(maestro, client, "hold it")
        for text in ("first", "/status", "/new", "second"):
            await client.say(text, client_id=text)
        await client.say("/stop")
        await maestro.ended("controlled", "completed", 5)
    jobs = by_message(maestro, "controlled")
    assert {text: row["status"] for text, row in jobs.items() if row["status"] != "completed"} == {
        "hold it": "cancelled"
    }
    # What came before the /new belongs to the older conversation, so it is answered by itself.
    assert jobs["first"]["conversation_id"] != jobs["second"]["conversation_id"]


async def test_a_failure_is_told_once_and_an_operator_has_all_of_it_answered(maestro: Instance) -> None:
    async with maestro.client("unlucky") as client:
        await hold(maestro, client, "hold on")
        maestro.llm.script("last words", failure=Failure.status(400), times=1)
        for text in ("first words", "last words"):
            await client.say(text, client_id=text)
        await client.say("/stop")
        await maestro.ended("unlucky", "failed")
        notices = [await client.wait_for("message") for _ in range(2)]
        [told] = [frame for frame in notices if frame["content"] == FAILURE_NOTICE]
        assert told["replyTo"].endswith(":last words")
        failed = by_message(maestro, "unlucky")["first words"]
        merged = by_message(maestro, "unlucky")["last words"]
        # Who asks for the one that was merged gets the one that answers for it.
        with maestro.operator() as operator:
            again = await operator.control.replay(merged["id"], ReplayMode.RESTART, "a test")
        assert (await client.wait_for("message"))["content"] == "answer to: last words"
    await maestro.ended("unlucky", "completed", 2)
    assert sent(maestro, "unlucky") == [STOPPED, FAILURE_NOTICE, "answer to: last words"]
    [restarted] = maestro.query("SELECT * FROM queue WHERE id = ?", again)
    assert (restarted["restarted_from"], restarted["status"]) == (failed["id"], "completed")
    assert maestro.llm.matching("last words")[-1].texts[1:] == ["hold on", "first words", "last words"]
    assert said(maestro, "unlucky") == ["hold on", "first words", "last words", "answer to: last words"]


async def test_a_stop_takes_all_of_it_back(maestro: Instance) -> None:
    async with maestro.client("regretful") as client:
        await hold(maestro, client, "hold everything")
        maestro.llm.script("both", failure=Failure.silence())
        for text in ("the one", "both"):
            await client.say(text, client_id=text)
        await client.say("/stop")
        await maestro.asked("both")
        await client.say("/stop")
        await maestro.ended("regretful", "cancelled", 2)
    jobs = by_message(maestro, "regretful")
    assert [jobs[text]["status"] for text in ("the one", "both")] == ["cancelled", "merged"]


async def test_where_a_channel_queues_each_message_has_its_answer(maestro: Instance) -> None:
    async with maestro.client("patient") as client:
        await hold(maestro, client, "hold still")
        for text in ("one", "two"):
            await client.say(text, client_id=text)
        await client.say("/stop")
        jobs = await maestro.ended("patient", "completed", 3)
    assert {job["merged_into"] for job in jobs} == {None}
    assert [len(maestro.llm.matching(text)) for text in ("one", "two")] == [1, 1]


async def test_a_restart_of_the_process_answers_together_once(maestro: Instance) -> None:
    async with maestro.client("cut-off") as client:
        await hold(maestro, client, "hold again")
        maestro.llm.script("and this", failure=Failure.silence(), times=1)
        for text in ("this", "and this"):
            await client.say(text, client_id=text)
        await client.say("/stop")
        await maestro.asked("and this")
    await maestro.restart()
    await maestro.ended("cut-off", "completed", 2)
    jobs = by_message(maestro, "cut-off")
    assert (jobs["this"]["status"], jobs["and this"]["merged_into"]) == ("completed", jobs["this"]["id"])
    assert said(maestro, "cut-off") == ["hold again", "this", "and this", "answer to: and this"]
