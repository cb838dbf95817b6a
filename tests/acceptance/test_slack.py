"""Slack from end to end: the real slack-sdk, a server that speaks Slack's protocol, a real Temporal server."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from tests.support.history import history_of
from tests.support.instance import Instance, Row, running_instance, until
from tests.support.slack_server import APP_TOKEN, BOT_TOKEN, SECOND_BOT_TOKEN, SIGNING_SECRET, Fault, SlackServer, slash

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("slack")]

PNG = b"\x89PNG\r\n\x1a\n and pixels"
OGG = b"OggS\x00\x02 OpusHead and sound"
CODE = "```python\n" + "".join(f"print({n:04} < 1)\n" for n in range(500)) + "```"
ADA = "UADA"
SQUARE = "CSQUARE"
"""A channel that is the helper's; in others it is spoken to by name."""
EVENTS = "events"
"""The account of a second app, to which Slack posts."""


class Town:
    """A workspace with an app that is ours, and what a test asks about it."""

    def __init__(self, slack: SlackServer) -> None:
        self.slack = slack
        slack.workspace.person(ADA, "Ada")
        self.maestro: Instance

    @property
    def events_url(self) -> str:
        """Where Slack posts to the second app."""
        return f"http://127.0.0.1:{self.maestro.loaded.settings.web.port}/platforms/slack/{EVENTS}/events"

    async def say(self, text: str, channel: str, **fields: Any) -> str:
        """Let Ada say something to the helper; returns the message's time."""
        return await self.slack.say(channel, ADA, f"@helper {text}", **fields)

    async def job(self, ts: str, status: str = "completed") -> Row:
        """Return the one job of a message once it has ended this way."""
        sql = "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND status = ?"
        [job] = await self.maestro.until(sql, ts, status)
        return job

    async def ask(self, text: str, channel: str, **fields: Any) -> str:
        """Say something to the helper and return the text of the last post."""
        await self.job(await self.say(text, channel, **fields))
        return str(self.slack.posted(channel)[-1]["text"])

    def posts(self, channel: str) -> list[str]:
        """Return the texts that were posted to a channel."""
        return [str(post["text"]) for post in self.slack.posted(channel)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    async with SlackServer.running() as slack:
        town = Town(slack)
        options = {"baseUrl": slack.api_url, "mediaHosts": ["127.0.0.1"], "paceSeconds": 0, "historySeconds": 0}
        signed = {
            "platform": "slack",
            "account": EVENTS,
            "secrets": {"botToken": SECOND_BOT_TOKEN, "signingSecret": SIGNING_SECRET},
            "options": {**options, "mode": "events"},
        }
        socket = {"enabled": True, "botToken": BOT_TOKEN, "appToken": APP_TOKEN, **options}
        async with running_instance(
            tmp_path_factory.mktemp("slack"),
            agents=[{"slug": "chief", "role": "conductor"}, {"slug": "helper"}],
            channels=[{"platform": "slack", "channel": SQUARE, "agent": "helper"}],
            owner={"ids": [f"slack:{ADA}"]},
            connectors={"slack": socket, "bots": [signed]},
        ) as maestro:
            town.maestro = maestro
            await slack.connected()
            await maestro.until("SELECT * FROM connectors WHERE account = ? AND state = 'running'", EVENTS)
            yield town


@pytest.fixture(autouse=True)
def mended(town: Town) -> None:
    town.maestro.llm.reset()


async def test_a_message_is_answered_in_a_thread_while_the_thread_shows_that_somebody_types(town: Town) -> None:
    said = await town.slack.say(SQUARE, ADA, "hello &lt;you&gt;")
    job = await town.job(said)
    [post] = town.slack.posted(SQUARE, said)
    assert (post["text"], post["thread_ts"]) == ("answer to: hello &lt;you&gt;", said)
    assert (post["unfurl_links"], post["unfurl_media"]) == (False, False)
    assert (SQUARE, said) in [(one["channel_id"], one["thread_ts"]) for one in town.slack.api.statuses]
    [row] = town.maestro.query("SELECT * FROM deliveries WHERE job_id = ?", job["id"])
    assert (row["state"], row["platform_message_id"]) == ("sent", post["ts"])


async def test_a_thread_is_a_conversation_of_its_own(town: Town) -> None:
    first = await town.slack.say(SQUARE, ADA, "my name is Ada")
    await town.job(first)
    await town.job(await town.slack.say(SQUARE, ADA, "what is it", thread=first))
    [request] = town.maestro.llm.matching("what is it")
    assert "my name is Ada" in "".join(request.texts)
    await town.job(await town.slack.say(SQUARE, ADA, "who am I"))
    [request] = town.maestro.llm.matching("who am I")
    assert "my name is Ada" not in "".join(request.texts)
    assert len(town.slack.posted(SQUARE, first)) == 2


async def test_a_direct_message_is_the_conductors_and_flat(town: Town) -> None:
    job = await town.job(await town.slack.say("DPRIVATE", ADA, "in private"))
    [post] = town.slack.posted("DPRIVATE")
    assert (post["text"], "thread_ts" in post) == ("answer to: in private", False)
    [step] = town.maestro.query("SELECT result FROM job_steps WHERE job_id = ? AND step = 'route'", job["id"])
    assert '"chief"' in step["result"]


async def test_a_picture_reaches_the_model(town: Town) -> None:
    picture = town.slack.file("cat.png", PNG, "image/png")
    await town.ask("look", "CPICTURE", files=[picture])
    [request] = town.maestro.llm.matching("look")
    assert request.images == [PNG]
    assert town.slack.downloads[-1] == (f"/files-pri/{picture}", f"Bearer {BOT_TOKEN}")


async def test_a_voice_message_is_heard(town: Town) -> None:
    town.maestro.llm.script(wire="transcription", reply="what I said")
    await town.ask("listen", "CVOICE", files=[town.slack.file("audio_message.ogg", OGG, "audio/ogg")])
    assert "what I said" in town.maestro.llm.matching("listen")[-1].last_user


async def test_a_long_answer_keeps_its_code_in_fences(town: Town) -> None:
    town.maestro.llm.script(reply=f"Here:\n{CODE}\nDone.")
    said = await town.say("code", "CCODE")
    await town.job(said)
    posts = town.posts("CCODE")
    assert len(posts) > 2
    assert all(len(post) <= 3900 and post.count("```") % 2 == 0 for post in posts)
    lines = [line for post in posts for line in post.splitlines()]
    assert [line for line in lines if line.startswith("print")] == [f"print({n:04} &lt; 1)" for n in range(500)]
    assert {post["thread_ts"] for post in town.slack.posted("CCODE")} == {said}


async def test_a_very_long_answer_goes_as_a_file(town: Town) -> None:
    long = "word " * 8000
    town.maestro.llm.script(reply=long)
    await town.ask("much", "CLONG")
    [file] = [file for post in town.slack.posted("CLONG") for file in post.get("files", [])]
    assert town.slack.workspace.files[file["id"]].content.decode().split() == long.split()


async def test_what_is_told_three_times_is_answered_once(town: Town) -> None:
    message = town.slack.write("CTHRICE", ADA, "@helper once", thread="1.000001")
    envelopes = [await town.slack.tell("CTHRICE", message, kind) for kind in ("message", "app_mention", "message")]
    for envelope in envelopes:
        await town.slack.acknowledged(envelope)
    assert await town.ask("afterwards", "CTHRICE", thread="1.000001") == "answer to: @helper afterwards"
    assert town.posts("CTHRICE") == ["answer to: @helper once", "answer to: @helper afterwards"]


async def test_a_cut_connection_costs_nothing(town: Town) -> None:
    opened, cut = town.slack.socket.opened, list(town.slack.socket.sockets)
    await town.slack.socket.drop()
    await until(lambda: not any(socket in cut for socket in town.slack.socket.sockets))
    assert await town.ask("while you were away", "CCUT") == "answer to: @helper while you were away"
    assert town.slack.socket.opened > opened


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("limited", Fault.limited(1)),
        ("unavailable", Fault.broken(503)),
        ("unavailable-after", Fault.broken(503, stores=True)),
        ("cut-before", Fault.cut_before()),
        ("cut-after", Fault.cut_after()),
    ],
)
async def test_an_answer_arrives_once_whatever_befalls_its_first_try(town: Town, name: str, fault: Fault) -> None:
    town.slack.fail("chat.postMessage", fault)
    assert await town.ask("please", f"C{name}") == "answer to: @helper please"
    assert len(town.posts(f"C{name}")) == 1


async def test_a_refusal_is_not_tried_again_and_closes_the_channel_until_somebody_writes_there(town: Town) -> None:
    before = len(town.slack.called("chat.postMessage"))
    town.slack.fail("chat.postMessage", Fault.refused("is_archived"))
    job = await town.job(await town.say("please", "CCLOSED"), "failed")
    assert len(town.slack.called("chat.postMessage")) == before + 1
    assert job["error"]
    assert await town.ask("again", "CCLOSED") == "answer to: @helper again"


async def test_a_signed_request_is_answered_once_however_often_it_comes(town: Town) -> None:
    message = town.slack.write("CSIGNED", ADA, "@helper signed")
    body = json.dumps(town.slack.event("CSIGNED", message)).encode()
    assert [await town.slack.post(town.events_url, body) for _ in range(3)] == [200, 200, 200]
    job = await town.job(message["ts"])
    assert (job["account"], town.posts("CSIGNED")) == (EVENTS, ["answer to: @helper signed"])
    stop = urlencode(slash(town.slack.workspace, "DADA", ADA, "/maestro-status")).encode()
    assert await town.slack.post(town.events_url, stop, Content_Type="application/x-www-form-urlencoded") == 200
    await until(lambda: any(post.startswith("Nothing is running here") for post in town.posts("DADA")))


async def test_a_request_with_a_wrong_or_an_old_signature_is_refused(town: Town) -> None:
    body = json.dumps(town.slack.event("CFORGED", town.slack.write("CFORGED", ADA, "@helper forged"))).encode()
    assert await town.slack.post(town.events_url, body, secret="another") == 401
    assert await town.slack.post(town.events_url, body, at=int(time.time()) - 301) == 401
    assert await town.slack.post(town.events_url, body, X_Slack_Signature="v0=" + "0" * 64) == 401
    assert town.maestro.query("SELECT * FROM inbox WHERE channel = 'CFORGED'") == []


async def test_a_file_of_200_megabytes_is_not_fetched(town: Town) -> None:
    before = len(town.slack.downloads)
    await town.ask("huge", "CHUGE", files=[town.slack.file("huge.png", PNG, "image/png", size=200 * 1024**2)])
    [request] = town.maestro.llm.matching("huge")
    assert (request.images, len(town.slack.downloads)) == ([], before)


async def test_a_file_at_a_private_address_is_not_fetched(town: Town) -> None:
    inside = town.slack.file("inside.png", PNG, "image/png", url="https://10.0.0.1/inside.png")
    job = await town.job(await town.say("private", "CINSIDE", files=[inside]))
    [row] = town.maestro.query("SELECT * FROM media WHERE inbox_id = ?", job["inbox_id"])
    assert (row["digest"], "not one of the hosts" in row["error"]) == ("", True)


async def test_a_stranger_with_a_picture_costs_nothing(town: Town) -> None:
    before = len(town.slack.downloads), len(town.slack.called("files.info"))
    picture = town.slack.file("cat.png", PNG, "image/png")
    await town.job(await town.slack.say("DZOE", "UZOE", "let me in", files=[picture]), "dropped")
    [post] = await town.slack.posts("DZOE")
    assert "Tell the operator this code" in post["text"]
    assert town.maestro.llm.requests == []
    assert (len(town.slack.downloads), len(town.slack.called("files.info"))) == before


async def test_the_command_stop_ends_an_answer(town: Town) -> None:
    town.maestro.llm.script(match="slowly", delay=30.0)
    said = await town.slack.say("DADA", ADA, "slowly")
    await town.maestro.asked("slowly")
    await town.slack.command("DADA", ADA, "/maestro-stop")
    await town.job(said, "cancelled")
    await until(lambda: town.posts("DADA")[-1:] == ["Stopped."])


async def test_an_edit_of_what_waits_changes_what_is_asked(town: Town) -> None:
    town.maestro.llm.script(match="first", delay=1.0)
    first = await town.say("first", "CEDIT")
    await town.maestro.asked("first")
    waiting = await town.say("secnod", "CEDIT", thread=first)
    await town.slack.acknowledged(await town.slack.edit("CEDIT", waiting, "@helper second"))
    await town.job(waiting)
    assert town.posts("CEDIT") == ["answer to: @helper first", "answer to: @helper second"]


async def test_what_was_said_while_maestro_was_down_is_answered_once_and_in_order(town: Town) -> None:
    first = town.slack.write("COUTAGE", ADA, "@helper before")
    await town.slack.acknowledged(await town.slack.tell("COUTAGE", first))
    await town.job(first["ts"])
    await town.maestro.stop()
    sockets = town.slack.socket.opened
    missed = [town.slack.write("COUTAGE", ADA, f"@helper missed {n}", thread=first["ts"]) for n in range(3)]
    await town.maestro.start()
    await town.slack.connected(sockets + 1)
    await town.slack.tell("COUTAGE", first)
    for message in missed:
        await town.job(message["ts"])
    await town.ask("after", "COUTAGE", thread=first["ts"])
    said = ["before", "missed 0", "missed 1", "missed 2", "after"]
    assert town.posts("COUTAGE") == [f"answer to: @helper {one}" for one in said]


async def test_no_token_is_anywhere(town: Town) -> None:
    """Not in a row, a file of the data folder, or a workflow's history."""
    town.slack.fail("chat.postMessage", Fault.broken())
    job = await town.job(await town.say("please", "CTOKEN"))
    history = await history_of(town.maestro, job["id"])
    for token in (BOT_TOKEN, SECOND_BOT_TOKEN, APP_TOKEN, SIGNING_SECRET):
        assert token.encode() not in history
        assert [path for path in files(town.maestro.data_dir) if token.encode() in path.read_bytes()] == []


def files(folder: Path) -> list[Path]:
    """Return every file of a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]
