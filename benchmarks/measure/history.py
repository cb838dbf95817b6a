"""What a message leaves in Temporal: events, and the actions a cloud would bill."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from temporalio.client import Client

from benchmarks.billing import billable_actions, heartbeats_received
from benchmarks.clients import people
from benchmarks.measure.bench import Bench
from benchmarks.product import Product, Setting, settle, up
from benchmarks.results import Figure, Section, Target, at_most, figure
from temporal.server import EmbeddedServer, ServerConfig
from tests.support.instance import free_port

THINKS = 20
"""Seconds of the slow model."""
EMBEDDED_HEARTBEAT = 3
REMOTE_HEARTBEAT = 30


@dataclass(frozen=True)
class Measured:
    """A Temporal server that counts the requests it gets."""

    address: str
    metrics: str

    async def heartbeats(self) -> int:
        """Return how many heartbeats it has received so far."""
        async with httpx.AsyncClient(trust_env=False) as http:
            return heartbeats_received((await http.get(self.metrics)).raise_for_status().text)


@dataclass(frozen=True)
class Cost:
    """What one message left in Temporal."""

    events: int
    counted: int
    """Actions that are in the history."""
    heartbeats: int = 0

    @property
    def actions(self) -> int:
        """All actions a cloud would bill."""
        return self.counted + self.heartbeats


async def history(bench: Bench) -> Section:
    """Count an ordinary message, and one whose model thinks for long."""
    setting = bench.setting("history")
    async with up(setting) as product:
        embedded = await _cost(product, f"127.0.0.1:{setting.options['temporal']['port']}")
    ordinary = await _remote(bench, "ordinary", REMOTE_HEARTBEAT)
    await bench.model.answers_after(THINKS)
    often, seldom = await asyncio.gather(
        *(_remote(bench, f"slow-{seconds}", seconds) for seconds in (EMBEDDED_HEARTBEAT, REMOTE_HEARTBEAT))
    )
    await bench.model.answers_after(0)
    slow = f"{THINKS} s model call, heartbeat timeout"
    return Section(
        "history",
        "History events and billable actions of one message",
        "Events of the workflow's history; actions counted from it by the published rules of Temporal Cloud, which "
        "`benchmarks/billing.py` states, and heartbeats as the Temporal server counted them. The heartbeat timeout is "
        f"{EMBEDDED_HEARTBEAT} s with the embedded server, which bills nothing, and {REMOTE_HEARTBEAT} s with "
        "`temporal.address`.",
        (
            *_figures("ordinary message, embedded server", embedded, at_most(8)),
            *_figures("ordinary message, server at an address", ordinary, at_most(8)),
            *_figures(f"{slow} {REMOTE_HEARTBEAT} s", seldom, at_most(8)),
            *_figures(f"{slow} {EMBEDDED_HEARTBEAT} s", often, None),
        ),
    )


def _figures(what: str, cost: Cost, bill: Target | None) -> tuple[Figure, ...]:
    return (
        figure(f"{what}: events", "", cost.events, at_most(26)),
        figure(f"{what}: billable actions, {cost.heartbeats} of them heartbeats", "", cost.actions, bill),
    )


async def _remote(bench: Bench, name: str, heartbeat: int) -> Cost:
    """Return what a message costs on a server that was started apart from Maestro."""
    folder = bench.folder / f"history-{name}"
    await asyncio.to_thread(folder.mkdir)
    async with _server(folder) as server:
        setting = settle(
            folder / "maestro", bench.model, temporal={"address": server.address, "heartbeatSeconds": heartbeat}
        )
        async with up(setting) as product:
            before = await server.heartbeats()
            cost = await _cost(product, server.address)
            return replace(cost, heartbeats=await server.heartbeats() - before)


async def _cost(product: Product, address: str) -> Cost:
    """Have one message answered and read its history."""
    async with people(product.web_port, 1) as [person]:
        await person.ask()
    client = await Client.connect(address)
    handle = client.get_workflow_handle(_last_job(product.setting))
    await handle.result()
    events = list((await handle.fetch_history()).events)
    return Cost(len(events), billable_actions(events).total())


def _last_job(setting: Setting) -> str:
    with closing(sqlite3.connect(f"file:{setting.data / 'maestro.db'}?mode=ro", uri=True)) as database:
        [job_id] = database.execute("SELECT id FROM queue ORDER BY turn DESC LIMIT 1").fetchone()
    return str(job_id)


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[Measured]:
    """Run a Temporal server as the product would, but with its metrics served."""
    port = free_port()
    config = ServerConfig(folder, free_port(), free_port(), extra_args=("--metrics-port", str(port)))
    server = EmbeddedServer(config, lambda _: None)
    try:
        await server.start()
        yield Measured(server.address, f"http://127.0.0.1:{port}/metrics")
    finally:
        await server.stop()
