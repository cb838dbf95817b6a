"""What an agent remembers, and where: what it learned in one channel may stay there.

See docs/decisions.md: memory scope, duplicate facts.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from maestro.domain.conversations.conversation import INSTRUCTIONS
from maestro.domain.llm.prompts import CallPurpose
from tests.support.instance import Instance, running_instance

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("tags")]

SMALL_MODEL = "openai/nobody-knows-this-model"
"""Its window is 8,192 tokens, so a conversation may take 6,144."""
FILLER = " ".join(["seven words that mean nothing at all"] * 110)
"""About 1,050 tokens."""
FACTS, SUMMARY = INSTRUCTIONS[CallPurpose.FACTS], INSTRUCTIONS[CallPurpose.SUMMARY]
AGENTS = [
    {"slug": "conductor", "role": "conductor", "model": SMALL_MODEL},
    {"slug": "ada", "name": "Ada", "memoryScope": "agent"},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    """One whose agents remember by conversation, but for one that does so everywhere."""
    async with running_instance(
        tmp_path_factory.mktemp("memory"),
        agents=AGENTS,
        memory={"scope": "conversation"},
        tools={"default": ["memory_search"]},
    ) as instance:
        yield instance


async def say(maestro: Instance, channel: str, text: str) -> str:
    """Say something in a channel, and return the answer."""
    async with maestro.client(channel) as client:
        return await client.ask(text, patience=30)


async def system(maestro: Instance, channel: str, text: str) -> str:
    """Say something in a channel, and return the system message that the model got with it."""
    await say(maestro, channel, text)
    return maestro.llm.matching(text)[-1].texts[0]


async def test_what_a_channel_taught_stays_there_and_a_repeat_is_not_kept(maestro: Instance) -> None:
    maestro.llm.script("learn", reply="I will. [MEMORY:sticky] The vault is green. [/MEMORY][STATE:mood] fine [/STATE]")
    maestro.llm.script("again", reply="I know. [MEMORY:sticky] the vault is GREEN [/MEMORY]")
    assert await say(maestro, "secret", "learn this") == "I will."
    assert await say(maestro, "secret", "again, please") == "I know."
    [fact] = maestro.query("SELECT * FROM memory_facts WHERE content LIKE '%green%'")
    assert fact["place"].endswith("/secret//")
    assert fact["confidence"] > 0.8, "it was said again"
    known = await system(maestro, "secret", "what do you know here?")
    assert "The vault is green." in known
    assert "mood" in known
    elsewhere = await system(maestro, "open", "what do you know there?")
    assert "vault" not in elsewhere
    assert "mood" not in elsewhere


async def test_a_search_sees_what_its_channel_sees(maestro: Instance) -> None:
    maestro.llm.script("note it", reply="Yes. [MEMORY:project_context] The bridge opens at noon. [/MEMORY]")
    await say(maestro, "river", "note it")
    for channel, sees in (("river", True), ("hill", False)):
        maestro.llm.script(channel, calls=(("memory_search", '{"query": "bridge?"}'),), rounds=0)
        maestro.llm.script(channel, reply="{results}", rounds=1)
        assert ("opens at noon" in await say(maestro, channel, f"search from the {channel}")) is sees


async def test_an_agents_own_scope_beats_the_settings(maestro: Instance) -> None:
    maestro.llm.script("teach", reply="Fine. [MEMORY:sticky] Tea is at five. [/MEMORY]")
    await say(maestro, "kitchen", "@ada teach")
    assert "Tea is at five." in await system(maestro, "garden", "@ada, when is tea?")
    assert "Tea is at five." not in await system(maestro, "garden", "when is tea for the conductor?")


async def test_a_compaction_learns_for_its_channel(maestro: Instance) -> None:
    maestro.llm.script(FACTS, reply="[MEMORY:important_event] They spoke of seven words. [/MEMORY]")
    maestro.llm.script(SUMMARY, reply="They spoke of nothing at all.")
    async with maestro.client("long") as client:
        for number in range(7):
            await client.ask(f"message-{number} {FILLER}", patience=30)
    [fact] = maestro.query("SELECT * FROM memory_facts WHERE category = 'important_event'")
    assert fact["place"].endswith("/long//")
    assert "seven words." in await system(maestro, "long", "what happened here?")
