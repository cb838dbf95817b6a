"""Two hosts that share only PostgreSQL and Temporal: each is killed, cut off and paused, and the promise holds."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.chaos.conftest import HELPER
from tests.chaos.load import under_load
from tests.support.chatting import PATIENCE, Person, person
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.separate import READY
from tests.support.two_hosts import Host, TwoHosts, two_hosts

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("two-hosts"),
    pytest.mark.postgresql_only(reason="is about hosts that share a database server"),
]

CUT = 30.0
"""Seconds for which a host cannot reach the database, and hears nothing of that."""
PAUSE = 60.0
"""Seconds for which every process of a host stands still."""
LOST = "lost the lease of the connector web/default"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hosts(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoHosts]:
    async with two_hosts(tmp_path_factory.mktemp("hosts"), llm, agents=[HELPER]) as started:
        yield started


@pytest.fixture
def evidence(hosts: TwoHosts) -> Evidence:
    return Evidence(hosts.store.parent)


@contextlib.asynccontextmanager
async def unfit(hosts: TwoHosts, host: Host) -> AsyncIterator[None]:
    """Let the load balancer find out that a host does not answer, for the length of a block."""
    hosts.unfit = [host]
    hosts.web.drop()
    try:
        yield
    finally:
        hosts.unfit = ()


def answers_of(somebody: Person) -> list[int]:
    return [frame["id"] for frame in somebody.replies]


class Socket:
    """A client that stays with one host, as one does of which no load balancer takes care; it never gives up."""

    def __init__(self, socket: ClientConnection) -> None:
        self.answers: list[int] = []
        self.reading = asyncio.create_task(self._read(socket))

    async def _read(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in socket:
                frame = json.loads(text)
                self.answers += [frame["id"]] if frame["type"] == "message" else []


@contextlib.asynccontextmanager
async def connected_to(host: Host, channel: str) -> AsyncIterator[Socket]:
    """Stay connected to the connector of a host."""
    async with connect(f"ws://127.0.0.1:{host.web_port}/", ping_interval=None, close_timeout=1) as socket:
        await socket.send(json.dumps({"type": "auth", "channelId": channel, "lastId": 0}))
        client = Socket(socket)
        try:
            yield client
        finally:
            client.reading.cancel()


async def test_each_process_of_both_hosts_dies_under_load(hosts: TwoHosts, evidence: Evidence, llm: LLMServer) -> None:
    assert not (hosts.hosts[0].data / "secrets.key").exists(), "the keys come from the settings"
    async with AsyncExitStack() as stack:
        load = await under_load(stack, hosts.web.port, llm, "killed")
        for name in READY:
            for host in hosts.hosts:
                number, is_holder = hosts.lease()[0], host is hosts.holder()
                assert await host.parts[name].end() == -signal.SIGKILL
                if name == "connect" and is_holder:
                    await hosts.taken(after=number)
                    assert hosts.holder() is hosts.other(host)
                await host.revive(name)
        await load.assert_kept(evidence, llm)


async def test_a_host_that_cannot_reach_the_database_loses_its_lease_to_the_other(
    hosts: TwoHosts, evidence: Evidence, llm: LLMServer
) -> None:
    number, host = hosts.lease()[0], hosts.holder()
    process = host.parts["connect"]
    since = len(process.said)
    async with AsyncExitStack() as stack:
        load = await under_load(stack, hosts.web.port, llm, "cut")
        host.way.cut()
        mending = asyncio.get_running_loop().call_later(CUT, host.way.mend)
        stack.callback(host.way.mend)
        async with unfit(hosts, host):
            await process.says(LOST, since)
            await hosts.taken(after=number)
            assert host.way.is_cut, "the other host takes the lease while this one is cut off"
            assert hosts.holder() is hosts.other(host)
            async with person(hosts.web.port, "meanwhile") as somebody:
                await somebody.say("meanwhile. please, @helper")
                await somebody.answered("meanwhile.")
            await asyncio.sleep(max(0.0, mending.when() - asyncio.get_running_loop().time()))
        await load.assert_kept(evidence, llm)


async def test_a_paused_host_sends_nothing_when_it_goes_on(hosts: TwoHosts, evidence: Evidence, llm: LLMServer) -> None:
    number, host = hosts.lease()[0], hosts.holder()
    process = host.parts["connect"]
    since = len(process.said)
    async with AsyncExitStack() as stack:
        left = await stack.enter_async_context(connected_to(host, "paused-0"))
        load = await under_load(stack, hosts.web.port, llm, "paused")
        host.pause()
        stack.callback(host.go_on)
        ends = asyncio.get_running_loop().time() + PAUSE
        async with unfit(hosts, host):
            await hosts.taken(after=number)
            assert hosts.holder() is hosts.other(host)
            before = list(left.answers)
            await asyncio.sleep(max(0.0, ends - asyncio.get_running_loop().time()))
            host.go_on()
            await process.says(LOST, since)
            await asyncio.wait_for(left.reading, PATIENCE)
        await load.assert_kept(evidence, llm)
        assert left.answers == before, "the host that lost its lease sent nothing when it went on"
        assert before != answers_of(load.people[0]), "the other host sent the rest"
