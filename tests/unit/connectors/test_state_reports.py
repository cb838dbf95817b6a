"""Operators see the last state that a connector reported, also when the store was busy at the report."""

import asyncio
from dataclasses import dataclass, field

import pytest
from pydantic import SecretStr

from connectors import account
from connectors.account import AccountConnector
from connectors.base import ConnectorState
from connectors.options import Instance, Options
from maestro.domain.errors import StoreBusy
from tests.support.memory_context import MemoryContext
from tests.support.slack_app import slack_and_app

RUNNING, DEGRADED = ConnectorState.RUNNING, ConnectorState.DEGRADED


@dataclass
class BusyStore(MemoryContext):
    """A store that refuses the first reports of a state."""

    refusals: dict[ConnectorState, int] = field(default_factory=dict)

    async def report(self, state: ConnectorState, detail: str = "") -> None:
        if self.refusals.get(state, 0) > 0:
            self.refusals[state] -= 1
            raise StoreBusy("the database is locked")
        await super().report(state, detail)


class Bot(AccountConnector):
    """A connector that receives nothing; the tests call its methods that report a state."""

    platform = "paper"

    async def _receive(self) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> BusyStore:
    """Return a store; a report that it refuses is repeated at once."""
    monkeypatch.setattr(account, "backoff_seconds", lambda: iter([0.0] * 1_000))
    return BusyStore()


def bot(store: BusyStore) -> Bot:
    """Return a bot."""
    return Bot(Instance("default", {"token": SecretStr("t")}, Options()), store)


async def test_a_refused_report_is_repeated_until_the_store_has_it(store: BusyStore) -> None:
    store.refusals = {RUNNING: 3}
    await bot(store).report_running("as maestro")
    assert store.states == [(RUNNING, "as maestro")]


async def test_a_refused_report_is_not_repeated_after_a_newer_one(store: BusyStore) -> None:
    store.refusals = {DEGRADED: 500}
    connector = bot(store)
    broken = asyncio.create_task(connector.report_broken("the connection was lost"))
    while store.refusals[DEGRADED] == 500:  # noqa: ASYNC110 - the refusal offers no event
        await asyncio.sleep(0)
    await connector.report_running("as maestro")
    await broken
    assert store.states == [(RUNNING, "as maestro")]


async def test_a_refused_report_is_not_repeated_after_the_end(store: BusyStore) -> None:
    store.refusals = {RUNNING: 500}
    connector = bot(store)
    running = asyncio.create_task(connector.run())
    while not store.states:  # noqa: ASYNC110 - the report offers no event
        await asyncio.sleep(0)
    late = asyncio.create_task(connector.report_running("as maestro"))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    await late
    assert store.states == [(ConnectorState.STARTING, "")]


async def test_a_slack_app_is_shown_as_running_although_its_first_report_was_refused() -> None:
    async with slack_and_app(context=BusyStore(refusals={RUNNING: 2})) as app:
        await app.told(RUNNING)
