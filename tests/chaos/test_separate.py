"""Worker, API and connectors as processes of their own: each dies under load, and nobody notices in the chat."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.chaos.conftest import HELPER
from tests.chaos.load import under_load
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.ports import free_port
from tests.support.separate import READY, Separate, separate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("separate")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Separate]:
    async with separate(tmp_path_factory.mktemp("separate"), llm, agents=[HELPER]) as started:
        yield started


@pytest.fixture
def evidence(maestro: Separate) -> Evidence:
    return Evidence(maestro.data)


@pytest.mark.parametrize("victim", list(READY))
async def test_a_process_dies_under_load(maestro: Separate, evidence: Evidence, llm: LLMServer, victim: str) -> None:
    async with AsyncExitStack() as stack:
        load = await under_load(stack, maestro.web_port, llm, victim)
        assert await maestro.parts[victim].end() == -signal.SIGKILL
        await maestro.revive(victim)
        await load.assert_kept(evidence, llm)


async def test_the_temporal_server_dies_under_load(maestro: Separate, evidence: Evidence, llm: LLMServer) -> None:
    async with AsyncExitStack() as stack:
        load = await under_load(stack, maestro.web_port, llm, "server")
        await maestro.temporal.end()
        await maestro.temporal.start()
        await load.assert_kept(evidence, llm)


async def test_all_die_in_turn_under_load(maestro: Separate, evidence: Evidence, llm: LLMServer) -> None:
    async with AsyncExitStack() as stack:
        load = await under_load(stack, maestro.web_port, llm, "all")
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
            load = await under_load(stack, maestro.web_port, llm, "second")
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
            load = await under_load(stack, maestro.web_port, llm, "takeover")
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
