"""Four platforms in one process, killed while each of them in turn has our answer and has not said so."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.evidence import Evidence
from tests.support.four_platforms import OnWhatsApp, Place, four_platforms
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-all-platforms")]

NAMES = ("discord", "slack", "telegram", "whatsapp")
WITHOUT_KEYS = "telegram"
"""Who can neither recognise a repeat nor be asked: one more is what the promise allows, where it is marked."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def places() -> AsyncIterator[dict[str, Place]]:
    async with four_platforms() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    places: dict[str, Place], llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    async with running(
        tmp_path_factory.mktemp("maestro"),
        llm,
        agents=[{"slug": "chief", "role": "conductor"}],
        connectors={name: place.options for name, place in places.items()},
    ) as started:
        whatsapp = places["whatsapp"]
        assert isinstance(whatsapp, OnWhatsApp)
        whatsapp.server.postman.url = f"http://127.0.0.1:{started.web_port}/platforms/whatsapp/default"
        evidence = Evidence(started.data)
        connected = "SELECT 1 FROM connectors WHERE state = 'running' AND platform <> 'web'"
        await until(lambda: len(evidence.rows(connected)) == len(NAMES))
        yield started


def heard(place: Place, text: str) -> int:
    """Return how often a person was answered to this."""
    return sum(text in one for one in place.texts())


@pytest.mark.parametrize("silent", NAMES)
async def test_killed_while_one_platform_has_not_said_that_it_has_our_answer(
    maestro: Maestro, evidence: Evidence, places: dict[str, Place], llm: LLMServer, silent: str
) -> None:
    """The others are answered meanwhile, and nobody is answered twice when it lives again."""
    llm.reset()
    said = f"please {silent}"
    places[silent].be_silent()
    await places[silent].say(said)
    await until(lambda: heard(places[silent], said) == 1)
    others = [place for name, place in places.items() if name != silent]
    for place in others:
        await place.say(said)
    await until(lambda: all(heard(place, said) == 1 for place in others))
    answered = "SELECT queue.platform FROM queue JOIN inbox ON inbox.job_id = queue.id WHERE content = ? AND status = ?"
    await until(lambda: len(evidence.rows(answered, said, "completed")) == len(others))  # their receipts are kept
    await maestro.kill()
    await maestro.start()
    await until(lambda: len(evidence.rows(answered, said, "completed")) == len(NAMES))
    repeats = (
        "SELECT deliveries.* FROM deliveries JOIN inbox ON inbox.job_id = deliveries.job_id WHERE inbox.content = ?"
    )
    marked = Counter({row["platform"]: row["repeats"] for row in evidence.rows(repeats, said)})
    assert marked == Counter({silent: 1} if silent == WITHOUT_KEYS else {})
    assert {name: heard(place, said) for name, place in places.items()} == {name: 1 + marked[name] for name in NAMES}


@pytest.mark.parametrize("point", ["before accept", "after accept"])
async def test_killed_while_messages_of_all_come_in(
    maestro: Maestro, evidence: Evidence, places: dict[str, Place], llm: LLMServer, point: str
) -> None:
    """Whoever was not told that we have a message tells of it again, or is asked; each is answered once."""
    llm.reset()
    said = f"hello {point}"
    maestro.arm(point)
    for place in places.values():
        await place.say(said)
    await maestro.crash_at(point)
    await until(lambda: all(heard(place, said) == 1 for place in places.values()))
    rows = evidence.rows("SELECT platform FROM inbox WHERE content = ?", said)
    assert sorted(row["platform"] for row in rows) == sorted(NAMES)
