"""Buttons, files, reactions and quotes on Discord and Slack from end to end, both in one process."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.support import slack_server
from tests.support.discord_server import TOKEN, Channel, DiscordServer, Message
from tests.support.instance import Instance, Row, running_instance, until
from tests.support.slack_server import SlackServer
from tests.support.slack_server.workspace import Json

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("presses")]

CHOICES = '{"question": "Which colour?", "choices": ["Red", "Dark blue"]}'
ASK = ("ask_question", CHOICES)
WRITE = ("write_file", '{"path": "plan.txt", "content": "dig here"}')
SEND = ("send_file", '{"path": "plan.txt", "caption": "The **plan**"}')
TEXT = "Which colour?\n\nAnswer with a number or your own words:\n1. Red\n2. Dark blue"
EPHEMERAL = 64
ADA = "UADA"


@dataclass
class Town:
    """Two platforms, and the Maestro that is on both."""

    maestro: Instance
    discord: DiscordServer
    slack: SlackServer

    def script(self, about: str, *calls: tuple[str, str]) -> None:
        """Have the model make these calls, one after another, and then tell what came of them."""
        for done, call in enumerate(calls):
            self.maestro.llm.script(match=about, calls=(call,), rounds=done)
        self.maestro.llm.script(match=about, reply="It came to: {results}", rounds=len(calls))

    async def posts(self, channel: Channel, count: int) -> list[Message]:
        """Return what was sent to a channel of Discord once there is so much of it."""
        await until(lambda: len(self.discord.posts(channel)) >= count, what=f"{count} messages in {channel.name}")
        return self.discord.posts(channel)

    async def told(self, token: str) -> Json:
        """Return what a press was answered with."""
        await until(lambda: self.discord.said_to(token) != [], what="a word to a press")
        return self.discord.said_to(token)[0]

    def question(self, channel: str) -> Row:
        """Return the question that was asked in a channel."""
        (row,) = self.maestro.query(
            "SELECT questions.* FROM questions JOIN queue ON queue.id = job_id WHERE channel = ?", channel
        )
        return row


@pytest.fixture(scope="module")
def discord() -> Iterator[DiscordServer]:
    with DiscordServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(discord: DiscordServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    async with SlackServer.running() as slack:
        slack.workspace.person(ADA, "Ada")
        slack.workspace.scopes.add("reactions:write")
        async with running_instance(
            tmp_path_factory.mktemp("presses"),
            agents=[
                {"slug": "chief", "role": "conductor"},
                {"slug": "helper", "tools": ["ask_question", "write_file", "send_file"]},
            ],
            tools={"files": True},
            connectors={
                "discord": {
                    "enabled": True,
                    "token": TOKEN,
                    "baseUrl": discord.base_url,
                    "gatewayUrl": discord.gateway_url,
                    "ackReaction": "👀",
                },
                "slack": {
                    "enabled": True,
                    "botToken": slack_server.BOT_TOKEN,
                    "appToken": slack_server.APP_TOKEN,
                    "baseUrl": slack.api_url,
                    "paceSeconds": 0,
                    "ackReaction": "eyes",
                },
            },
        ) as maestro:
            await until(lambda: discord.greeted == 1, what="a connection to Discord")
            await slack.connected()
            yield Town(maestro, discord, slack)


async def test_a_press_on_discord_answers_and_others_have_none_to_give(town: Town) -> None:
    channel = town.discord.channel("shed")
    ann, bob = town.discord.user("ann"), town.discord.user("bob")
    town.script("paint the shed", ASK)
    said = town.discord.say(ann, channel, "@helper paint the shed")
    [asked] = await town.posts(channel, 1)
    assert asked.content == TEXT
    assert [button["label"] for button in asked.buttons] == ["Red", "Dark blue"]
    assert said.reactions == ["👀"]
    refused = await town.told(town.discord.press(bob, asked, 0))
    assert (refused["data"]["content"], refused["data"]["flags"]) == ("Another user has to answer this.", EPHEMERAL)
    assert (await town.told(town.discord.press(ann, asked, 1)))["type"] == 6
    answer = (await town.posts(channel, 2))[-1]
    assert (answer.content, answer.buttons) == ("It came to: Dark blue", [])
    question = town.question(str(channel.id))
    assert (question["answer"], question["answered_by"]) == ("Dark blue", f"discord:{ann.id}")
    await town.told(town.discord.press(ann, asked, 0))
    late = (await town.posts(channel, 3))[-1]
    assert late.content.startswith(f"#{question['id']} was answered already.")
    assert late.reply_to == asked.id
    assert town.question(str(channel.id))["answer"] == "Dark blue"


async def test_a_press_on_slack_answers_in_its_thread(town: Town) -> None:
    town.script("paint the boat", ASK)
    ts = await town.slack.say("CBOAT", ADA, "@helper paint the boat")
    (asked,) = await town.slack.posts("CBOAT", 1)
    assert (asked["thread_ts"], asked["text"]) == (ts, TEXT)
    said = town.slack.workspace.find("CBOAT", ts)
    assert said is not None
    assert said["reactions"] == ["eyes"]
    await town.slack.acknowledged(await town.slack.press("CBOAT", "USTRANGER", asked, 0))
    await until(lambda: town.slack.api.whispers != [], what="a whisper")
    assert town.slack.api.whispers[0]["user"] == "USTRANGER"
    envelope = await town.slack.press("CBOAT", ADA, asked, 0)
    await town.slack.acknowledged(envelope)
    await town.slack.socket.redeliver(envelope)
    _, answer = await town.slack.posts("CBOAT", 2)
    assert (answer["text"], answer["thread_ts"]) == ("It came to: Red", ts)
    assert town.question("CBOAT")["answered_by"] == f"slack:{ADA}"


async def test_a_file_comes_after_the_answer_on_both(town: Town) -> None:
    town.script("where do I dig", WRITE, SEND)
    channel = town.discord.channel("garden")
    town.discord.say(town.discord.user("ann"), channel, "@helper where do I dig")
    first, second = await town.posts(channel, 2)
    assert first.content.startswith("It came to: ")
    assert (second.content, second.attachments[0]["filename"]) == ("The **plan**", "plan.txt")
    assert second.attachments[0]["text"] == "dig here"
    ts = await town.slack.say("CGARDEN", ADA, "@helper where do I dig")
    _, file = await town.slack.posts("CGARDEN", 2, thread=ts)
    assert file["text"] == "The *plan*"
    assert town.slack.workspace.files[file["files"][0]["id"]].content == b"dig here"


async def test_what_a_person_replies_to_is_told_to_the_model_once_it_is_long_ago(town: Town) -> None:
    channel, ann = town.discord.channel("long ago"), town.discord.user("ann")
    for number in range(4):
        town.discord.say(ann, channel, f"@helper word {number}")
        await town.posts(channel, number + 1)
    first, last = town.discord.posts(channel)[0], town.discord.posts(channel)[-1]
    for number, (words, meant) in enumerate((("soon", last), ("later", first)), start=5):
        town.discord.say(ann, channel, f"@helper {words}", reply_to=meant.id)
        await town.posts(channel, number)
    assert [text for text in town.maestro.llm.matching("soon")[0].texts if "In reply" in text] == []
    [told] = [text for text in town.maestro.llm.matching("later")[0].texts if "In reply" in text]
    assert told == "[In reply to what you said:]\n> answer to: @helper word 0\n\n@helper later"
