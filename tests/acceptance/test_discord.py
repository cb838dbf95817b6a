"""Discord from end to end: the real discord.py, a server that speaks its protocol, a real Temporal server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.support.discord_server import TOKEN, Channel, DiscordServer, Fault, Message
from tests.support.history import history_of
from tests.support.instance import Instance, Row, running_instance, until
from tests.support.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("discord")]

PORT, PASSWORD = free_port(), "the operator's own"
PNG = b"\x89PNG\r\n\x1a\n and pixels"
OGG = b"OggS\x00\x02 OpusHead and sound"
CODE = "```python\n" + "".join(f"print({n:04})\n" for n in range(400)) + "```"


class Town:
    """A Discord server with a bot that is ours, and what a test asks about it."""

    def __init__(self, discord: DiscordServer) -> None:
        self.discord = discord
        self.ann = discord.user("ann")
        self.square = discord.channel("square")
        self.maestro: Instance

    def channel(self, name: str) -> Channel:
        """Make a channel in which an agent is spoken to by name."""
        return self.discord.channel(name)

    def say(self, content: str, channel: Channel | None = None, **fields: object) -> Message:
        """Let ann write, in the square unless told otherwise."""
        return self.discord.say(self.ann, channel or self.square, content, **fields)

    async def answers(self, channel: Channel, count: int = 1) -> list[str]:
        """Return what was sent to a channel once there are so many messages."""
        await until(lambda: len(self.discord.posts(channel)) >= count, what=f"{count} messages in {channel.name}")
        return [post.content for post in self.discord.posts(channel)]

    async def job(self, message: Message, status: str = "completed") -> Row:
        """Return the one job of a message once it has ended this way."""
        sql = "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND status = ?"
        [job] = await self.maestro.until(sql, str(message.id), status)
        return job

    async def ask(self, content: str, channel: Channel, **fields: object) -> str:
        """Say something to the helper and return the answer."""
        before = len(self.discord.posts(channel))
        said = self.say(f"@helper {content}", channel, **fields)
        answers = await self.answers(channel, before + 1)
        await self.job(said)
        return answers[-1]


@pytest.fixture(scope="module")
def discord() -> Iterator[DiscordServer]:
    with DiscordServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(discord: DiscordServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    town = Town(discord)
    async with running_instance(
        tmp_path_factory.mktemp("discord"),
        agents=[{"slug": "chief", "role": "conductor"}, {"slug": "helper"}],
        channels=[{"platform": "discord", "channel": str(town.square.id), "agent": "helper"}],
        webui={"enabled": True, "port": PORT, "password": PASSWORD},
        owner={"ids": [f"discord:{town.ann.id}"]},
        connectors={
            "discord": {
                "enabled": True,
                "token": TOKEN,
                "baseUrl": discord.base_url,
                "gatewayUrl": discord.gateway_url,
                "mediaHosts": ["127.0.0.1"],
            }
        },
    ) as maestro:
        town.maestro = maestro
        await until(lambda: discord.greeted == 1, what="a connection to Discord")
        yield town


@pytest.fixture(autouse=True)
def mended(town: Town) -> None:
    town.maestro.llm.reset()
    town.discord.mend()


async def test_a_message_is_answered_in_reply(town: Town) -> None:
    said = town.say("hello")
    assert await town.answers(town.square) == ["answer to: hello"]
    [post] = town.discord.posts(town.square)
    assert post.reply_to == said.id
    assert 0 < len(post.nonce) <= 25
    assert town.square.id in town.discord.typed
    job = await town.job(said)
    [row] = town.maestro.query("SELECT * FROM deliveries WHERE job_id = ?", job["id"])
    assert (row["state"], row["platform_message_id"]) == ("sent", str(post.id))


async def test_a_direct_message_is_the_conductors(town: Town) -> None:
    direct = town.discord.direct(town.ann)
    said = town.say("in private", direct)
    assert await town.answers(direct) == ["answer to: in private"]
    [step] = town.maestro.query(
        "SELECT result FROM job_steps WHERE job_id = ? AND step = 'route'", (await town.job(said))["id"]
    )
    assert '"chief"' in step["result"]


async def test_who_mentions_the_bot_where_nobody_is_at_home_is_answered_by_the_conductor(town: Town) -> None:
    channel, us = town.channel("nobody's"), town.discord.user("maestro")
    town.say("to each other", channel)
    said = town.say(f"<@{us.id}> who are you?", channel, mentions=[us])
    assert await town.answers(channel) == ["answer to: @Maestro who are you?"]
    [step] = town.maestro.query(
        "SELECT result FROM job_steps WHERE job_id = ? AND step = 'route'", (await town.job(said))["id"]
    )
    assert '"chief"' in step["result"]


async def test_a_thread_has_a_conversation_of_its_own_and_its_channels_agent(town: Town) -> None:
    thread = town.discord.channel("a thread", parent=town.square)
    said = town.say("in the thread", thread)
    assert await town.answers(thread) == ["answer to: in the thread"]
    [request] = town.maestro.llm.matching("in the thread")
    assert "hello" not in "".join(request.texts)
    assert (await town.job(said))["thread"] == str(thread.id)


async def test_a_picture_reaches_the_model(town: Town) -> None:
    town.discord.expire_links()
    await town.ask("look", town.channel("picture"), attachments=[town.discord.file("cat.png", PNG, "image/png")])
    [request] = town.maestro.llm.matching("look")
    assert request.images == [PNG]


async def test_a_voice_message_is_heard(town: Town) -> None:
    town.maestro.llm.script(wire="transcription", reply="what I said")
    sound = town.discord.file("voice-message.ogg", OGG, "audio/ogg")
    await town.ask("listen", town.channel("voice"), attachments=[sound])
    assert "what I said" in town.maestro.llm.matching("listen")[-1].last_user


async def test_a_long_answer_keeps_its_code_in_fences(town: Town) -> None:
    town.maestro.llm.script(reply=f"Here:\n{CODE}\nDone.")
    channel = town.channel("code")
    said = town.say("@helper code", channel)
    job = await town.job(said)
    posts = town.discord.posts(channel)
    assert len(posts) > 2
    assert all(len(post.content) <= 2000 and post.content.count("```") % 2 == 0 for post in posts)
    lines = [line for post in posts for line in post.content.splitlines()]
    assert [line for line in lines if line.startswith("print")] == [f"print({n:04})" for n in range(400)]
    assert [post.reply_to for post in posts] == [said.id] + [0] * (len(posts) - 1)
    assert len({post.nonce for post in posts}) == len(posts)
    states = town.maestro.query("SELECT state FROM deliveries WHERE job_id = ?", job["id"])
    assert {row["state"] for row in states} == {"sent"}


async def test_a_very_long_answer_goes_as_a_file(town: Town) -> None:
    long = "word " * 4000
    town.maestro.llm.script(reply=long)
    channel = town.channel("long")
    await town.job(town.say("@helper much", channel))
    [file] = [file for post in town.discord.posts(channel) for file in post.attachments]
    assert file["text"].split() == long.split()


async def test_what_is_told_three_times_is_answered_once(town: Town) -> None:
    channel = town.channel("thrice")
    said = town.say("@helper once", channel)
    town.discord.tell(said)
    town.discord.tell(said)
    await town.ask("afterwards", channel)
    assert [post.content for post in town.discord.posts(channel)] == [
        "answer to: @helper once",
        "answer to: @helper afterwards",
    ]


async def test_a_cut_connection_costs_nothing(town: Town) -> None:
    channel = town.channel("cut")
    before = town.discord.resumed
    town.discord.drop()
    assert await town.ask("while you were away", channel) == "answer to: @helper while you were away"
    assert town.discord.resumed == before + 1


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("limited", Fault.limited(0.1)),
        ("unavailable", Fault(503)),
        ("bad-gateway", Fault(502, stored=True)),
        ("cut-after", Fault.cut_after()),
    ],
)
async def test_an_answer_arrives_once_whatever_befalls_its_first_try(town: Town, name: str, fault: Fault) -> None:
    channel = town.channel(name)
    town.discord.fail("POST", "messages", fault, channel=channel)
    await town.ask("please", channel)
    assert [post.content for post in town.discord.posts(channel)] == ["answer to: @helper please"]


async def test_a_refusal_is_not_tried_again_and_closes_the_channel_until_somebody_writes_there(town: Town) -> None:
    channel = town.channel("forbidden")
    town.discord.fail("POST", "messages", Fault(403, 50013), channel=channel)
    job = await town.job(town.say("@helper please", channel), "failed")
    assert len([asked for asked in town.discord.asked("messages") if str(channel.id) in asked.path]) == 1
    assert job["error"]
    assert await town.ask("again", channel) == "answer to: @helper again"


async def test_a_file_of_200_megabytes_is_not_fetched(town: Town) -> None:
    before = len(town.discord.downloads)
    huge = town.discord.file("huge.png", PNG, "image/png", size=200 * 1024**2)
    await town.ask("huge", town.channel("huge"), attachments=[huge])
    [request] = town.maestro.llm.matching("huge")
    assert (request.images, len(town.discord.downloads)) == ([], before)


async def test_a_file_at_a_private_address_is_not_fetched(town: Town) -> None:
    inside = town.discord.file("inside.png", PNG, "image/png", url="http://localhost:1/inside.png")
    channel = town.channel("inside")
    said = town.say("@helper private", channel, attachments=[inside])
    job = await town.job(said)
    [row] = town.maestro.query("SELECT * FROM media WHERE inbox_id = ?", job["inbox_id"])
    assert (row["digest"], "may not be downloaded" in row["error"]) == ("", True)


async def test_a_stranger_with_a_picture_costs_nothing(town: Town) -> None:
    zoe = town.discord.user("zoe")
    direct, before = town.discord.direct(zoe), len(town.discord.downloads)
    picture = town.discord.file("cat.png", PNG, "image/png")
    said = town.discord.say(zoe, direct, "let me in", attachments=[picture])
    await town.job(said, "dropped")
    await town.answers(direct)
    assert (town.maestro.llm.requests, len(town.discord.downloads)) == ([], before)
    assert [asked for asked in town.discord.asked("message") if str(direct.id) in asked.path] == []


async def test_the_command_stop_ends_an_answer_and_is_answered_to_nobody_else(town: Town) -> None:
    channel = town.channel("stopped")
    town.maestro.llm.script(match="slowly", delay=30.0)
    said = town.say("@helper slowly", channel)
    await town.maestro.asked("slowly")
    token = town.discord.command(town.ann, channel, "stop")
    await town.job(said, "cancelled")
    await until(lambda: len(town.discord.said_to(token)) == 2)
    assert town.discord.said_to(token)[1]["content"] == "Stopped."
    assert town.discord.posts(channel) == []


async def test_an_edit_of_what_waits_changes_what_is_asked(town: Town) -> None:
    channel = town.channel("edited")
    town.maestro.llm.script(match="first", delay=1.0)
    town.say("@helper first", channel)
    await town.maestro.asked("first")
    waiting = town.say("@helper secnod", channel)
    town.discord.edit(waiting, "@helper second")
    assert (await town.answers(channel, 2))[1] == "answer to: @helper second"


async def test_what_was_said_while_maestro_was_down_is_answered_once_and_in_order(town: Town) -> None:
    channel = town.channel("outage")
    answered = town.say("@helper before", channel)
    await town.job(answered)
    await town.maestro.stop()
    town.discord.forget_sessions()
    sessions = town.discord.greeted
    for n in range(3):
        town.discord.write(town.ann, channel, f"@helper missed {n}")
    await town.maestro.start()
    await until(lambda: town.discord.greeted == sessions + 1)
    town.discord.tell(answered)
    expected = ["before", "missed 0", "missed 1", "missed 2"]
    await town.answers(channel, len(expected))
    await town.ask("after", channel)
    assert [post.content for post in town.discord.posts(channel)] == [
        f"answer to: @helper {said}" for said in [*expected, "after"]
    ]


async def test_the_token_is_nowhere(town: Town) -> None:
    """Not in a row, a file of the data folder, a workflow's history or an answer of the API."""
    channel = town.channel("token")
    town.discord.fail("POST", "messages", Fault(503), channel=channel)
    job = await town.job(town.say("@helper please", channel))
    assert TOKEN.encode() not in await history_of(town.maestro, job["id"])
    assert [path for path in files(town.maestro.data_dir) if TOKEN.encode() in path.read_bytes()] == []
    async with httpx.AsyncClient(base_url=f"http://localhost:{PORT}", auth=("maestro", PASSWORD)) as api:
        for path in ("connectors", "settings", "connectors/discord/default", f"jobs/{job['id']}"):
            answer = await api.get(f"/api/{path}")
            assert (answer.status_code, TOKEN in answer.text) == (200, False), path


def files(folder: Path) -> list[Path]:
    """Return every file of a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]
