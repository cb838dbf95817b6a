"""A process that lost the lease of a connector: it sends nothing, ends the connector, and takes it up again later."""

import asyncio
import contextlib
import threading
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import pytest

from connectors.failures import NotDispatched
from connectors.hub import ConnectorHub, SendAction
from maestro.connector_runtime import host
from maestro.connector_runtime.host import ConnectorHost
from maestro.domain.cluster import Lease
from maestro.domain.errors import LeaseLost, StoreBusy
from maestro.domain.messages import Address, OutgoingMessage, Receipt
from maestro.domain.settings.process import TemporalSettings
from maestro.settings import Settings
from temporal.endpoint import Endpoint
from temporal.engine import Engine, WorkerParts
from tests.support.bot import Bot

HERE = Address(platform="slack", channel="general")
PARTS = WorkerParts("queue", [], (), timedelta())
MESSAGE = OutgoingMessage(id=1, key="k", address=HERE, content="hello")


class OwnLease:
    """A lease that the test gives and takes away."""

    def __init__(self, leases: "OwnLeases", name: str) -> None:
        self.name, self.number, self.is_held = name, 1, False
        self._leases = leases

    def take(self) -> bool:
        """Take it if the test lets this process have it, and the server answers."""
        self._leases.asked.set()
        if self._leases.away:
            raise StoreBusy("the server does not answer")
        self.is_held = self._leases.free
        self._leases.held = self if self.is_held else self._leases.held
        return self.is_held

    def describe_holder(self) -> str:
        """Name nobody in particular."""
        return "process 7 on another-host"

    def release(self) -> None:
        """Give it back."""
        self.is_held = False


class OwnLeases:
    """The leases of one process; ``free`` says whether it gets one."""

    owner = "here"

    def __init__(self) -> None:
        self.free, self.away = True, False
        self.held: OwnLease | None = None
        self.asked = asyncio.Event()

    def lease(self, name: str) -> Lease:
        """Return a lease of this name."""
        return OwnLease(self, name)

    def find_gone(self, owners: Collection[str]) -> frozenset[str]:
        """Know nobody who ended."""
        del owners
        return frozenset()

    def find_problem(self) -> str:
        """Have none."""
        return ""

    def close(self) -> None:
        """Keep nothing."""


class Receiving(Bot):
    """A connector that receives until cancelled, and counts its beginnings and ends."""

    def __init__(self) -> None:
        super().__init__("slack")
        self.begun, self.ended = 0, 0
        self.changed = asyncio.Condition()
        self.sent: list[OutgoingMessage] = []

    async def run(self) -> None:
        """Receive nothing."""
        await self._count(begun=1)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Take everything."""
        self.sent.append(message)
        return await super().send(message)

    async def _count(self, begun: int) -> None:
        async with self.changed:
            self.begun += begun
            self.changed.notify_all()

    async def runs_again(self, times: int) -> None:
        """Return when it has been started so often."""
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(lambda: self.begun >= times)


@pytest.fixture(autouse=True)
def _scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.01)


@pytest.fixture
def leases() -> OwnLeases:
    return OwnLeases()


def hosting(
    tmp_path: Path, leases: OwnLeases, hub: ConnectorHub, said: list[str], address: str = "127.0.0.1:1"
) -> ConnectorHost:
    """Return a host whose engine never reaches its Temporal server, so that only the connector runs."""
    settings = Settings(data_dir=tmp_path, temporal=TemporalSettings(address=address))
    engine = Engine(Endpoint("127.0.0.1:1", "default"), said.append)
    return ConnectorHost(settings, leases, {}, hub, engine, said.append, lambda _: PARTS)


async def test_nothing_is_sent_or_edited_without_the_lease(leases: OwnLeases) -> None:
    hub, bot, lease = ConnectorHub(), Receiving(), leases.lease("slack-default")
    with hub.register_while_running(bot, lease=lease):
        refused = await hub.perform_send_action(bot, MESSAGE, SendAction.SEND)
        assert isinstance(refused, NotDispatched)
        assert refused.surely_unsent
        assert bot.sent == []
        assert lease.take()
        assert isinstance(await hub.perform_send_action(bot, MESSAGE, SendAction.SEND), Receipt)
    assert bot.sent == [MESSAGE]


async def test_a_step_that_got_its_connector_before_the_lease_was_lost_sends_nothing_after_the_end(
    leases: OwnLeases,
) -> None:
    """As a step does that waited for a file in an object storage, or for an answer that grows."""
    hub, bot, lease = ConnectorHub(), Receiving(), leases.lease("slack-default")
    assert lease.take()
    with hub.register_while_running(bot, lease=lease):
        got = hub.get_connector(HERE)
    refused = await hub.perform_send_action(got, MESSAGE, SendAction.SEND)
    assert isinstance(refused, NotDispatched)
    with hub.register_while_running(Receiving()):
        assert isinstance(await hub.perform_send_action(got, MESSAGE, SendAction.SEND), NotDispatched)
    assert bot.sent == []


async def test_a_connector_ends_with_its_lease_and_runs_again_when_the_process_gets_it_back(
    tmp_path: Path, leases: OwnLeases
) -> None:
    hub, bot, said = ConnectorHub(), Receiving(), list[str]()
    running = asyncio.create_task(hosting(tmp_path, leases, hub, said).run_with_lease(bot, lambda: None))
    await bot.runs_again(1)
    assert leases.held is not None
    leases.free = False
    leases.asked.clear()
    leases.held.is_held = False
    await asyncio.wait_for(leases.asked.wait(), 30)
    assert (bot.begun, bot.ended, list(hub.list_connectors())) == (1, 1, [])
    leases.free = True
    await bot.runs_again(2)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert any("lost the lease of the connector slack/default" in line for line in said)


async def test_a_process_waits_for_a_lease_while_the_server_does_not_answer(tmp_path: Path, leases: OwnLeases) -> None:
    bot = Receiving()
    leases.away = True
    running = asyncio.create_task(hosting(tmp_path, leases, ConnectorHub(), []).run_with_lease(bot, lambda: None))
    await asyncio.wait_for(leases.asked.wait(), 30)
    assert not running.done()
    leases.away = False
    await bot.runs_again(1)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_bot_that_lost_its_lease_says_so_to_the_one_who_restarts_it(tmp_path: Path, leases: OwnLeases) -> None:
    bot = Receiving()
    running = asyncio.create_task(hosting(tmp_path, leases, ConnectorHub(), []).run_bot(bot, lambda one: one.run()))
    await bot.runs_again(1)
    assert leases.held is not None
    leases.held.is_held = False
    with pytest.raises(LeaseLost, match="slack/default"):
        await asyncio.wait_for(running, 30)


@pytest.mark.parametrize("address", ["127.0.0.1:1", ""], ids=["separate", "embedded"])
async def test_a_connector_that_the_store_fails_keeps_its_lease_and_runs_again(
    tmp_path: Path, leases: OwnLeases, address: str
) -> None:
    class Failing(Receiving):
        async def run(self) -> None:
            await super()._count(begun=1)
            if self.begun == 1:
                raise StoreBusy("the store did not answer")
            await asyncio.Event().wait()

    bot = Failing()
    hosted = hosting(tmp_path, leases, ConnectorHub(), [], address).run_with_lease(bot, lambda: None)
    running = asyncio.create_task(hosted)
    await bot.runs_again(1)
    first = leases.held
    await bot.runs_again(2)
    # The one process with an embedded server needs no lease.
    assert (first is not None) == bool(address)
    assert first is None or first.is_held
    assert leases.held is first
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_connector_whose_report_fails_at_its_end_ends(tmp_path: Path, leases: OwnLeases) -> None:
    class Failing(Receiving):
        async def run(self) -> None:
            try:
                await super().run()
            finally:
                raise StoreBusy("the store did not answer")

    bot = Failing()
    running = asyncio.create_task(hosting(tmp_path, leases, ConnectorHub(), []).run_with_lease(bot, lambda: None))
    await bot.runs_again(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 30)
    assert (bot.begun, bot.ended) == (1, 1)


async def test_a_lease_taken_while_its_caller_is_cancelled_is_released() -> None:
    taking, may_take = threading.Event(), threading.Event()

    class SlowLease(OwnLease):
        def take(self) -> bool:
            taking.set()
            assert may_take.wait(30)
            return super().take()

    class SlowLeases(OwnLeases):
        def lease(self, name: str) -> Lease:
            return SlowLease(self, name)

    slow = SlowLeases()

    async def hold() -> None:
        async with host.hold_lease(slow, Receiving(), lambda _: None):
            raise AssertionError("it was cancelled before")

    holding = asyncio.create_task(hold())
    assert await asyncio.to_thread(taking.wait, 30)
    holding.cancel()
    await asyncio.sleep(0)
    may_take.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(holding, 30)
    assert slow.held is not None
    assert not slow.held.is_held
