"""The engine prepares a server for us, and does not take a moment's trouble for a refusal."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from temporal.endpoint import Endpoint
from temporal.engine import Engine
from temporal.namespace import SEARCH_ATTRIBUTES, find_missing_attributes
from tests.support.temporal_gate import KeyGate, key_gate, port_of, temporal_server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("diagnosis")]

KEY = "the-right-key"


@pytest_asyncio.fixture(loop_scope="module")
async def gate(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KeyGate]:
    """A gate before a server where all is well."""
    async with temporal_server(tmp_path_factory.mktemp("temporal")) as server, key_gate(port_of(server), KEY) as gate:
        yield gate


async def test_a_server_that_is_busy_for_a_moment_is_asked_again(gate: KeyGate) -> None:
    gate.busy = frozenset({"ListSearchAttributes"})
    said: list[str] = []
    engine = Engine(Endpoint(gate.address, "default", api_key=KEY), said.append)
    running = asyncio.create_task(engine.run())
    async with asyncio.timeout(60):
        while not gate.refused:  # noqa: ASYNC110 - the gate tells nobody
            await asyncio.sleep(0.02)
        gate.busy = frozenset()
        client = await engine.wait_for_client()
    assert (await find_missing_attributes(client, "default")).missing == ()
    assert said == []
    running.cancel()
    await asyncio.wait([running])


async def test_a_server_that_refuses_is_worked_with_and_the_fix_is_told_once(gate: KeyGate) -> None:
    gate.denied = frozenset({"ListSearchAttributes"})
    said: list[str] = []
    engine = Engine(Endpoint(gate.address, "default", api_key=KEY), said.append)
    running = asyncio.create_task(engine.run())
    async with asyncio.timeout(60):
        await engine.wait_for_client()
    [line] = said
    assert all(name in line for name in SEARCH_ATTRIBUTES)
    running.cancel()
    await asyncio.wait([running])
