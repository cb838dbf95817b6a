"""Layouts of separate processes: one of each kind on one host, or one of each kind on two hosts with PostgreSQL."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support import postgresql
from tests.support.composed import crashing_parts
from tests.support.crashing import arm, disarm, set_lock_wait
from tests.support.evidence import Evidence
from tests.support.four_platforms import Platforms
from tests.support.llm_server import LLMServer
from tests.support.ports import free_port, free_ports
from tests.support.separate import FAST, READY, SHARED_KEYS, STANDS_BY, Separate, TemporalApart
from tests.support.separate import Part as Process
from tests.support.two_hosts import Forwarder, Host
from tests.torture.layouts import (
    BUSY_SECONDS_OF_SEVERAL,
    PLATFORMS,
    POINT_PATIENCE,
    TEMPORAL,
    Layout,
    Member,
    Site,
    connected,
    copy_data_at_end,
    forwarder,
    is_refusal,
    own_disk,
    sections,
)
from tests.torture.plan import Harm

WORKER, CONNECT, API, ALL = "worker", "connect", "api", "everything"
COMMANDS = {WORKER: (WORKER, "--promote"), CONNECT: (CONNECT, "web", *PLATFORMS), API: (API,)}
PORTS_OF_A_HOST = 5


@dataclass
class Part:
    """One of the processes: ``since`` is how much it had said before its last start."""

    host: str
    kind: str
    process: Process
    since: int = 0

    @property
    def name(self) -> str:
        """What a disturbance calls it."""
        return f"{self.kind} {self.host}".strip()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.alive

    async def begin(self) -> None:
        """Start it without waiting."""
        self.since = await self.process.begin()

    async def is_ready(self) -> None:
        """Return when it is ready, or waits for a lease."""
        await self.process.says(READY[self.kind], self.since, STANDS_BY if self.kind == CONNECT else "")

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it."""
        return await self.process.end(number)

    @property
    def refuses(self) -> bool:
        """Whether it ended before it was ready, with a reason for people."""
        return is_refusal(self.process.said[self.since :], READY[self.kind])

    def output(self) -> str:
        """Return what it has printed."""
        return str(self.process.said)


class SeveralProcesses(Layout):
    """Processes that share a store and a Temporal server; ``hosts`` make a process of a command, by their names."""

    def __init__(self, hosts: Mapping[str, Callable[..., Process]], temporal: TemporalApart, site: Site) -> None:
        self._hosts = hosts
        self._temporal = temporal
        self._starting: asyncio.Task[None] | None = None
        self._processes: list[Process] = []
        """Every process that ever was."""
        self._parts = {one.name: one for host in hosts for kind in READY for one in [self._part(host, kind)]}
        # What the model and the platforms are reached by is killed twice as often as the API.
        twice = (name for name in self._parts if not name.startswith(API))
        super().__init__(site, (*self._parts, *twice, TEMPORAL, ALL, *filter(None, hosts)))

    async def start(self, platforms: Platforms) -> None:
        """Start everything, one host after the other, so that the first has the leases."""
        await self._temporal.start()
        for host in self._hosts:
            parts = [one for one in self._parts.values() if one.host == host]
            await self._begin(parts)
            for one in parts:
                await one.is_ready()
            await connected(self, platforms)

    async def end(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self._starting is not None:
            self._starting.cancel()
        await asyncio.gather(*(process.end() for process in self._processes))
        await self._temporal.end()

    def members(self) -> Sequence[Member]:
        """Return the processes."""
        return tuple(self._parts.values())

    async def kill(self, target: str) -> None:
        """Kill one process, those of a host, the Temporal server, or everything."""
        if target in (TEMPORAL, ALL):
            await self._temporal_started()
            await self._temporal.end()
            self._starting = asyncio.create_task(self._temporal.start())
        victims = self._select_processes(target)
        await asyncio.gather(*(one.end() for one in victims))
        for one in victims:
            await one.begin()

    async def crash(self, point: str) -> bool:
        """Let the process that gets there first die at a point."""
        arm(self.folder, point)
        ends = [asyncio.create_task(one.process.ended()) for one in self._parts.values()]
        try:
            await asyncio.wait(ends, timeout=POINT_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            reached = not disarm(self.folder)
            if reached:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ends:
                task.cancel()
        if not reached:
            await self.kill(next(iter(self._parts)))
        for one in self._parts.values():
            if not one.alive and await one.end() == -signal.SIGKILL:
                await one.begin()
        return reached

    async def stop(self, target: str, seconds: float) -> None:
        """Stop one process, those of a host, the Temporal server, or everything."""
        await self._temporal_started()
        stopped: list[Process | TemporalApart] = [one.process for one in self._select_processes(target)]
        stopped += [self._temporal] if target in (TEMPORAL, ALL) else []
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for one in stopped:
                one.send_signal(number)
            await asyncio.sleep(seconds if number == signal.SIGSTOP else 0)

    async def upgrade(self) -> None:
        """Put the next release beside this one, then in its place (docs/howto/upgrade-without-downtime.md)."""
        old = list(self._parts.values())
        for kind in (CONNECT, WORKER):
            await self._begin([self._part(one.host, kind) for one in old if one.kind == kind])
            await self.recover()
        for kind in (WORKER, CONNECT, API):
            ending = [one for one in old if one.kind == kind]
            codes = await asyncio.gather(*(one.end(signal.SIGTERM) for one in ending))
            assert set(codes) == {0}, [one.output() for one in ending]
        await self._begin([one for one in old if one.kind == API])
        await self.recover()

    def _part(self, host: str, kind: str) -> Part:
        """Return one more process of a kind, not yet started, with a port of its own for its health."""
        health = () if kind == API else ("--health-port", str(free_port()))
        self._processes.append(self._hosts[host](*COMMANDS[kind], *health))
        return Part(host, kind, self._processes[-1])

    def _select_processes(self, target: str) -> list[Part]:
        """Return the processes that a disturbance is about: one, those of a host, or all."""
        return [one for one in self._parts.values() if target in (one.name, one.host, ALL)]

    async def _begin(self, parts: list[Part]) -> None:
        """Start processes, which take the place of others, without waiting."""
        self._may_refuse = True  # They start at once, and the patience of their store is short here.
        for one in parts:
            self._parts[one.name] = one
            await one.begin()

    async def _temporal_started(self) -> None:
        if self._starting is not None:
            await self._starting


def server_at(way: Forwarder) -> dict[str, object]:
    """Return the section of the Temporal server that is reached by this way."""
    return {"address": f"127.0.0.1:{way.port}", "heartbeatSeconds": 1}


@asynccontextmanager
async def running(apart: SeveralProcesses, folder: Path, platforms: Platforms) -> AsyncIterator[SeveralProcesses]:
    """Start everything, and end it; its data is copied if that is wanted."""
    async with copy_data_at_end(apart, folder):
        try:
            await apart.start(platforms)
            yield apart
        finally:
            await apart.end()


@asynccontextmanager
async def separate(folder: Path, llm: LLMServer, platforms: Platforms) -> AsyncIterator[SeveralProcesses]:
    """Run worker, API and connectors on one data folder."""
    data = folder / "data"
    data.mkdir()
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(forwarder(lambda: [llm.port]))
        way = await stack.enter_async_context(forwarder(lambda: [maestro.temporal.port]))
        options = {**sections(platforms, model.port), "temporal": server_at(way)}
        maestro = Separate(folder, llm, options, partial(crashing_parts, data))
        temporal = TemporalApart(folder, maestro.temporal.port, *FAST)
        skipped = stack.enter_context(own_disk(data))
        set_lock_wait(data, BUSY_SECONDS_OF_SEVERAL)
        ways = {(Harm.MODEL, ""): model, (Harm.TEMPORAL, ""): way}
        site = Site(Evidence(data), maestro.web_port, maestro.api_port, ways, skipped)
        apart = SeveralProcesses({"": maestro.another}, temporal, site)
        yield await stack.enter_async_context(running(apart, folder, platforms))


@asynccontextmanager
async def two_hosts(folder: Path, llm: LLMServer, platforms: Platforms) -> AsyncIterator[SeveralProcesses]:
    """Run worker, API and connectors on each of two hosts, which share PostgreSQL and Temporal and nothing else.

    A load balancer passes connections on to the host that takes them.
    """
    set_lock_wait(folder, BUSY_SECONDS_OF_SEVERAL)
    hosts: dict[str, Host] = {}
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(forwarder(lambda: [llm.port]))
        web = await stack.enter_async_context(forwarder(lambda: [one.web_port for one in hosts.values()]))
        api = await stack.enter_async_context(forwarder(lambda: [one.api_port for one in hosts.values()]))
        ways = {(Harm.MODEL, ""): model}
        for name in ("one", "two"):
            ways[Harm.TEMPORAL, name] = await stack.enter_async_context(forwarder(lambda: [temporal.port]))
        # Chosen when the ports of all the forwarders are taken.
        own, *ports = free_ports(1 + 2 * PORTS_OF_A_HOST)
        temporal, evidence = TemporalApart(folder, own, *FAST), Evidence(folder)
        for name in ("one", "two"):
            server = server_at(ways[Harm.TEMPORAL, name])
            shared = {**sections(platforms, model.port), "keys": SHARED_KEYS, "temporal": server}
            chosen = [ports.pop() for _ in range(PORTS_OF_A_HOST)]
            database = postgresql.database_url(evidence.path)
            host = hosts[name] = Host(folder / name, database, chosen, shared, partial(crashing_parts, folder))
            await host.way.start()
            stack.push_async_callback(host.way.close)
            ways[Harm.DATABASE, name] = host.way
        site = Site(evidence, web.port, api.port, ways)
        apart = SeveralProcesses({name: host.another for name, host in hosts.items()}, temporal, site)
        yield await stack.enter_async_context(running(apart, folder, platforms))
