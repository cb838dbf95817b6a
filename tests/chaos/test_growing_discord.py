"""Maestro is killed while an answer grows on Discord, which knows a message again by its key."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from maestro.domain.drafts import PLACEHOLDER
from tests.support.discord_server import TOKEN, DiscordServer, Fault
from tests.support.evidence import Evidence
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-growing-discord")]

WORDS = "one two three four five six seven eight nine ten"


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
        connectors={"discord": {"enabled": True, "streaming": True, "streamingSeconds": 0.2, **account}},
    ) as started:
        await until(lambda: discord.greeted == 1)
        yield started


@pytest.mark.parametrize("moment", ["before placeholder receipt", "in the stream", "while it is held"])
async def test_one_message_is_left(
    maestro: Maestro, evidence: Evidence, discord: DiscordServer, llm: LLMServer, moment: str
) -> None:
    channel, ann = discord.channel(moment), discord.user("ann")
    llm.script(reply=WORDS)
    llm.script(reply=WORDS, pause=6, times=1)
    if moment == "while it is held":
        discord.fail("POST", "messages", Fault.held(after=True), channel=channel)
    elif moment != "in the stream":
        maestro.arm(moment)
    said = discord.say(ann, channel, "@helper count")
    if moment == "before placeholder receipt":
        await maestro.crash_at(moment)
    else:
        awaited = "two" if moment == "in the stream" else PLACEHOLDER
        await until(lambda: any(awaited in post.content for post in discord.posts(channel)), what=awaited)
        await maestro.kill()
        await maestro.start()
    sql = "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND completed_at > ''"
    await until(lambda: bool(evidence.rows(sql, str(said.id))), what="an end")
    [job] = evidence.rows(sql, str(said.id))
    [post] = discord.posts(channel)
    assert (job["status"], post.content, post.reply_to) == ("completed", WORDS, said.id)
    [row] = evidence.deliveries(job["id"])
    assert (row["state"], row["platform_message_id"]) == ("sent", str(post.id))
    assert evidence.calls(job["id"])["answered"] == 1
