"""Maestro is killed while it talks to Discord: nothing is sent twice, and nothing that was said is lost."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.support.discord_server import TOKEN, Channel, DiscordServer, Fault, Message, User
from tests.support.evidence import Evidence, Row
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-discord")]

PARAGRAPH = "The quick brown fox jumps over the lazy dog. " * 40
LONG = "\n\n".join(f"{n}: {PARAGRAPH}" for n in range(4))
"""An answer of four chunks, in as many paragraphs."""


@pytest.fixture(scope="module")
def discord() -> Iterator[DiscordServer]:
    with DiscordServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    discord: DiscordServer, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    account = {"token": TOKEN, "baseUrl": discord.base_url, "gatewayUrl": discord.gateway_url}
    async with running(
        tmp_path_factory.mktemp("maestro"),
        llm,
        agents=[{"slug": "helper"}],
        connectors={"discord": {"enabled": True, **account}},
    ) as started:
        await until(lambda: discord.greeted == 1)
        yield started


@pytest.fixture
def ann(discord: DiscordServer) -> User:
    return discord.user("ann")


async def ended(evidence: Evidence, message: Message) -> Row:
    """Return the one job of a message when it is completed."""
    sql = (
        "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND status = 'completed'"
    )
    await until(lambda: bool(evidence.rows(sql, str(message.id))))
    [job] = evidence.rows(sql, str(message.id))
    return job


def nonces(discord: DiscordServer, channel: Channel) -> list[str]:
    """Return the key of every request to send something to a channel."""
    return [str(asked.body["nonce"]) for asked in discord.asked("messages") if str(channel.id) in asked.path]


async def test_killed_after_discord_has_it_and_before_we_know(
    maestro: Maestro, evidence: Evidence, discord: DiscordServer, ann: User
) -> None:
    channel = discord.channel("accepted")
    discord.fail("POST", "messages", Fault.held(after=True), channel=channel)
    said = discord.say(ann, channel, "@helper please")
    await until(lambda: len(discord.posts(channel)) == 1)
    await maestro.kill()
    await maestro.start()
    job = await ended(evidence, said)
    [first, again] = nonces(discord, channel)[:2]
    assert first == again
    assert [post.nonce for post in discord.posts(channel)].count(first) == 1
    assert [row["state"] for row in evidence.deliveries(job["id"])] == ["sent"] * len(discord.posts(channel))
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_between_the_second_chunk_and_the_third(
    maestro: Maestro, evidence: Evidence, discord: DiscordServer, llm: LLMServer, ann: User
) -> None:
    llm.script(reply=LONG)
    channel = discord.channel("chunks")
    discord.fail("POST", "messages", Fault.held(after=False), channel=channel, skip=2)
    said = discord.say(ann, channel, "@helper please")
    await until(lambda: len(nonces(discord, channel)) == 3)
    await maestro.kill()
    assert len(discord.posts(channel)) == 2
    await maestro.start()
    job = await ended(evidence, said)
    one, two, three, *others = nonces(discord, channel)
    assert others[0] == three
    assert {one, two}.isdisjoint(others)
    assert " ".join(post.content for post in discord.posts(channel)).split() == LONG.split()
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_before_a_message_is_kept(
    maestro: Maestro, evidence: Evidence, discord: DiscordServer, ann: User
) -> None:
    """Discord tells of it once: it is the history that has it, after a cursor that is older."""
    channel = discord.channel("unkept")
    await ended(evidence, discord.say(ann, channel, "@helper hello"))
    maestro.arm("before accept")
    said = discord.say(ann, channel, "@helper are you there")
    await maestro.crash_at("before accept")
    await ended(evidence, said)
    assert sum(post.reply_to == said.id for post in discord.posts(channel)) == 1
