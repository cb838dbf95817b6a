"""Messages that come while their agent is busy: collected into one turn, or interrupting it.

See docs/decisions.md: busy agents.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from maestro.domain.jobs.busy import INTERRUPTED
from maestro.domain.jobs.job import FAILURE_NOTICE
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.messages import OutgoingMessage
from tests.support.instance import Instance, Row, running_instance
from tests.support.llm_server import Failure
from tests.support.uploads import upload
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
    """Return the jobs in the lane of a channel by what was said."""
    joined = "queue JOIN inbox ON inbox.id = inbox_id WHERE queue.channel = ? AND lane IS NOT NULL"
    rows = maestro.query(f"SELECT queue.*, inbox.content FROM {joined}", channel)
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


async def test_files_of_every_message_go_along(maestro: Instance) -> None:
    async with maestro.client("with-files") as client:
        assert maestro.taps.connector is not None
        file = await upload(client, maestro.taps.connector.port, "notes.txt", b"plain words")
        await hold(maestro, client, "hold my files")
        await client.say("look at this")
        await client.say("these are my notes", attachments=[file])
        await client.say("what do you think")
        await client.say("/stop")
        await maestro.ended("with-files", "completed", 2)
    [request] = maestro.llm.matching("what do you think")
    assert request.texts[3].startswith("these are my notes\n[Attachment: notes.txt (text/plain")
    [step] = maestro.query(
        "SELECT state FROM job_steps JOIN queue ON queue.id = job_id WHERE channel = 'with-files' AND step = 'media'"
    )
    assert step["state"] == "done"


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
            again = await operator.jobs.replay(merged["id"], ReplayMode.RESTART, "a test")
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


async def test_a_newer_message_interrupts_and_is_answered_with_the_older_one(maestro: Instance) -> None:
    async with maestro.client("hasty") as client:
        await hold(maestro, client, "book a table for two")
        await client.say("for three", client_id="for three")
        reply = await client.wait_for("message")
    await maestro.ended("hasty", "completed")
    assert (reply["content"], reply["replyTo"].rpartition(":")[2]) == ("answer to: for three", "for three")
    assert sent(maestro, "hasty") == ["answer to: for three"]
    older, newer = (by_message(maestro, "hasty")[text] for text in ("book a table for two", "for three"))
    assert (older["status"], older["reason"], older["merged_into"]) == ("cancelled", INTERRUPTED, newer["id"])
    assert maestro.llm.matching("for three")[0].texts[1:] == ["book a table for two", "for three"]
    assert said(maestro, "hasty") == ["book a table for two", "for three", "answer to: for three"]


async def test_an_answer_that_is_being_sent_is_sent(maestro: Instance) -> None:
    async with maestro.client("too-late") as client:

        async def say_more(_: OutgoingMessage) -> None:
            del maestro.taps.after["too-late"]
            await client.send({"type": "message", "content": "one more thing", "clientId": "more"})
            await maestro.until("SELECT id FROM inbox WHERE content = 'one more thing'")

        maestro.taps.after["too-late"] = say_more
        first = await client.ask("a question", client_id="first")
        second = await client.wait_for("message")
        await maestro.ended("too-late", "completed", 2)
    assert (first, second["content"]) == ("answer to: a question", "answer to: one more thing")
    assert {job["merged_into"] for job in maestro.jobs("too-late")} == {None}
    assert said(maestro, "too-late") == ["a question", first, "one more thing", second["content"]]


async def test_a_job_that_waits_for_somebody_is_interrupted_too(maestro: Instance) -> None:
    maestro.llm.script("ask me", calls=[("ask_question", {"question": "Which one?"})], rounds=0)
    async with maestro.client("waits-for-someone", user_name="Grace") as client:
        await client.say("ask me", client_id="ask")
        await maestro.ended("waits-for-someone", "waiting")
        await client.wait_for("message")
        # Whoever is asked answers with a plain line; a file makes it an ordinary message.
        assert maestro.taps.connector is not None
        file = await upload(client, maestro.taps.connector.port, "notes.txt", b"plain words")
        await client.say("never mind", client_id="never", attachments=[file])
        assert (await client.wait_for("message"))["content"].startswith("answer to: never mind")
    jobs = by_message(maestro, "waits-for-someone")
    assert (jobs["ask me"]["status"], jobs["ask me"]["reason"]) == ("cancelled", INTERRUPTED)
    [question] = maestro.query("SELECT status FROM questions WHERE job_id = ?", jobs["ask me"]["id"])
    assert question["status"] == "cancelled"


async def test_what_waits_behind_an_interrupted_message_is_collected(maestro: Instance) -> None:
    async with maestro.client("changed-mind") as client:
        await hold(maestro, client, "write a poem")
        for text in ("about the moon", "about the sea"):
            maestro.llm.script(text, failure=Failure.silence())
        for text in ("about the moon", "about the sea"):
            await client.say(text, client_id=text)
        await maestro.asked("about the sea")
        await client.say("in French", client_id="in French")
        assert await client.wait_for("message")
    await maestro.ended("changed-mind", "completed")
    assert sent(maestro, "changed-mind") == ["answer to: in French"]
    everything = ["write a poem", "about the moon", "about the sea", "in French"]
    assert said(maestro, "changed-mind") == [*everything, "answer to: in French"]
    assert maestro.llm.matching("in French")[0].texts[1:] == everything


async def test_two_first_messages_at_once_make_one_conversation(maestro: Instance) -> None:
    async with maestro.client("both-at-once") as one, maestro.client("both-at-once") as other:
        await asyncio.gather(one.say("from here"), other.say("from there"))
        await maestro.until(
            "SELECT 1 FROM messages JOIN conversations ON conversations.id = conversation_id "
            "WHERE channel = 'both-at-once' AND role = 'user' GROUP BY channel HAVING count(*) = 2"
        )
    [row] = maestro.query("SELECT count(*) FROM conversations WHERE channel = 'both-at-once'")
    assert row[0] == 1
