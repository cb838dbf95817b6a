"""Worker, API and connectors as processes of their own: each dies under load, and nobody notices in the chat."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.chaos.conftest import HELPER
from tests.chaos.promise import assert_answered_once, assert_in_order
from tests.support.chatting import Person, person
from tests.support.evidence import Evidence
from tests.support.instance import free_port
from tests.support.llm_server import LLMServer
from tests.support.separate import READY, Separate, separate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("separate")]

PEOPLE = 3
SAID = 3
"""Messages of each person; they say the next one without waiting for an answer."""
MODEL = 0.4
"""Seconds of a model call: enough for a kill to meet several."""
GAP = 0.1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Separate]:
    async with separate(tmp_path_factory.mktemp("separate"), llm, agents=[HELPER]) as started:
        yield started


@pytest.fixture
def evidence(maestro: Separate) -> Evidence:
    return Evidence(maestro.data)


class Load:
    """Several people who talk at the same time."""

    def __init__(self, people: list[Person], name: str) -> None:
        self.people = people
        self.said = {somebody: [f"{somebody.channel}-{n}." for n in range(SAID)] for somebody in people}
        self.name = name

    async def talk(self) -> None:
        """Say everything, a little at a time."""
        for number in range(SAID):
            for somebody in self.people:
                await somebody.say(f"{self.said[somebody][number]} please, @helper")
            await asyncio.sleep(GAP)

    async def some_answered(self) -> None:
        """Return when each person has had an answer, and none has had all."""
        for somebody in self.people:
            await somebody.answered(self.said[somebody][0])
        assert not any(somebody.replies_to(self.said[somebody][-1]) for somebody in self.people)

    async def assert_kept(self, evidence: Evidence, llm: LLMServer) -> None:
        """Wait for the end of every job, then hold it against the promise."""
        for somebody, said in self.said.items():
            jobs = await evidence.ended(*said)
            await somebody.acknowledged(*said)
            await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
            for job, client_id in zip(jobs, said, strict=True):
                assert_answered_once(evidence, somebody, job, client_id)
                # A process may be killed after it has recorded a call and before the request leaves it.
            assert 1 <= len(llm.matching(client_id)) <= 1 + evidence.calls(job["id"])["interrupted"]
            assert_in_order(evidence, somebody, llm, said)


async def under_load(stack: AsyncExitStack, maestro: Separate, llm: LLMServer, name: str) -> Load:
    """Return people who talk and have had their first answers."""
    llm.reset()
    llm.script(delay=MODEL, reply="so you say: {last}")
    people = [await stack.enter_async_context(person(maestro.web_port, f"{name}-{n}")) for n in range(PEOPLE)]
    load = Load(people, name)
    await load.talk()
    await load.some_answered()
    return load


@pytest.mark.parametrize("victim", list(READY))
async def test_a_process_dies_under_load(maestro: Separate, evidence: Evidence, llm: LLMServer, victim: str) -> None:
    async with AsyncExitStack() as stack:
        load = await under_load(stack, maestro, llm, victim)
        assert await maestro.parts[victim].end() == -signal.SIGKILL
        await maestro.revive(victim)
        await load.assert_kept(evidence, llm)


async def test_the_temporal_server_dies_under_load(maestro: Separate, evidence: Evidence, llm: LLMServer) -> None:
    async with AsyncExitStack() as stack:
        load = await under_load(stack, maestro, llm, "server")
        await maestro.temporal.end()
        await maestro.temporal.start()
        await load.assert_kept(evidence, llm)


async def test_all_die_in_turn_under_load(maestro: Separate, evidence: Evidence, llm: LLMServer) -> None:
    async with AsyncExitStack() as stack:
        load = await under_load(stack, maestro, llm, "all")
        for victim in READY:
            await maestro.parts[victim].end()
            await maestro.revive(victim)
        await load.assert_kept(evidence, llm)


async def test_a_second_worker_goes_on_where_the_first_died(
    maestro: Separate, evidence: Evidence, llm: LLMServer
) -> None:
    second = maestro.another("worker", "--health-port", str(free_port()))
    await second.says(READY["worker"], await second.begin())
    try:
        async with AsyncExitStack() as stack:
            load = await under_load(stack, maestro, llm, "second")
            await maestro.worker.end()
            await load.assert_kept(evidence, llm)
        assert await second.end(signal.SIGTERM) == 0
    finally:
        await second.end()
        await maestro.revive("worker")


async def test_a_second_connector_stands_by_and_takes_over(
    maestro: Separate, evidence: Evidence, llm: LLMServer
) -> None:
    second = maestro.another("connect", "web", "--health-port", str(free_port()))
    since = await second.begin()
    await second.says("this process takes over after it", since)
    try:
        async with AsyncExitStack() as stack:
            load = await under_load(stack, maestro, llm, "takeover")
            await maestro.connect.end()
            await second.says(READY["connect"], since)
            await load.assert_kept(evidence, llm)
        assert await second.end(signal.SIGTERM) == 0
    finally:
        await second.end()
        await maestro.revive("connect")


async def test_all_end_in_good_order(maestro: Separate) -> None:
    """The last test of the module: what was told to end does, and says that all is well."""
    codes = await asyncio.gather(*(part.end(signal.SIGTERM) for part in maestro.parts.values()))
    assert codes == [0, 0, 0]
