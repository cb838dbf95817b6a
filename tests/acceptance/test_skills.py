"""A message brings in the skills it needs, and only they reach the model."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from maestro.domain.skills.views import SkillChange
from maestro.operations.skills import SkillFolder, SkillOperations
from tests.support.instance import Instance, running_instance
from tests.support.skill_texts import skill_text, write_skill

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("message-flow")]

AGENTS = [{"slug": "conductor", "role": "conductor"}, {"slug": "choosy", "skills": ["brewing", "abacus"], "tools": []}]
CHANNELS = [{"agent": "choosy", "platform": "web", "channel": "choosy"}]
REVIEWING = "# Reviewing code"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    folder = tmp_path_factory.mktemp("skills")
    async with running_instance(folder, agents=AGENTS, channels=CHANNELS) as instance:
        yield instance


@pytest.fixture
def own(maestro: Instance) -> Path:
    """Return the operator's folder."""
    return maestro.loaded.settings.skills.folder


def seen_by_model(maestro: Instance, message: str) -> str:
    """Return the system message with which the model was asked this."""
    [request] = maestro.llm.matching(message)
    return request.texts[0]


async def stored(maestro: Instance, slug: str, digest_not: str = "") -> str:
    """Return the digest of a skill once it is stored, and is another than the one known already."""
    [row] = await maestro.until("SELECT digest FROM skills WHERE slug = ? AND digest <> ?", slug, digest_not)
    return str(row["digest"])


async def test_a_message_that_needs_a_skill_brings_it_in_and_the_next_one_does_not(maestro: Instance) -> None:
    async with maestro.client("reviews") as client:
        await client.ask("please review this code of mine: x = 1")
        await client.ask("thanks, and how is the weather?")
    system = seen_by_model(maestro, "please review this code of mine")
    assert REVIEWING in system
    assert "slug: code-review" not in system
    assert "# Finding the cause" not in system
    assert REVIEWING not in seen_by_model(maestro, "how is the weather")


async def test_an_own_skill_is_used_as_its_file_is_now(maestro: Instance, own: Path) -> None:
    async with maestro.client("tea") as client:
        await client.ask("first, how do I make tea?")
        path = write_skill(own, "drinks/tea.md", skill_text("tea", "tea", body="Boil water first."))
        digest = await stored(maestro, "tea")
        await client.ask("second, how do I make tea?")
        write_skill(own, "drinks/tea.md", skill_text("tea", "tea", body="Warm the pot first."))
        await stored(maestro, "tea", digest_not=digest)
        await client.ask("third, how do I make tea?")
        write_skill(own, "drinks/tea.md", "no skill at all")
        await maestro.until("SELECT problem FROM skill_problems WHERE source = ?", str(path))
        await client.ask("fourth, how do I make tea?")
        with maestro.operator() as operator:
            SkillOperations(operator.store, SkillFolder(own)).change("tea", SkillChange(enabled=False), "operator")
        await client.ask("fifth, how do I make tea?")
    told = [seen_by_model(maestro, f"{number}, how do I") for number in ("first", "second", "third", "fourth", "fifth")]
    assert ["Boil water first." in system for system in told] == [False, True, False, False, False]
    assert ["Warm the pot first." in system for system in told] == [False, False, True, True, False]


async def test_an_agent_gets_its_own_skills_and_none_that_needs_a_tool_it_lacks(maestro: Instance, own: Path) -> None:
    write_skill(own, "brewing.md", skill_text("brewing", "coffee", body="Grind the beans."))
    write_skill(own, "roasting.md", skill_text("roasting", "coffee", body="Roast the beans."))
    write_skill(
        own, "abacus.md", skill_text("abacus", "coffee", body="Count the beans.", more="required_tools: [calculate]\n")
    )
    for slug in ("brewing", "roasting", "abacus"):
        await stored(maestro, slug)
    async with maestro.client("choosy") as client:
        await client.ask("here, a coffee for me")
    async with maestro.client("anybody") as client:
        await client.ask("there, a coffee for you")
    told = [seen_by_model(maestro, message) for message in ("a coffee for me", "a coffee for you")]
    assert ["Grind the beans." in system for system in told] == [True, True]
    assert ["Roast the beans." in system for system in told] == [False, True]
    assert ["Count the beans." in system for system in told] == [False, True]
