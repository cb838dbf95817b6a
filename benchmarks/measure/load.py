"""CPU time and latency of a message: fifty users at once, one alone, and a slow model; beside a base if given."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from benchmarks.clients import ask_at_once, ask_in_parallel, ask_in_sequence, connect_users
from benchmarks.figures import Spread
from benchmarks.measure.bench import BASE, THIS, Bench
from benchmarks.processes import cpu_times, run_process, wait_for_line
from benchmarks.product import Product, up
from benchmarks.results import Figure, Section, at_most, figure
from benchmarks.trivial import READY

CROWD = 50
EACH = 3
WARM_UP = 100
TRIVIAL = 300
CONVERSATIONS = 5
CONVERSATION = 10
"""Messages of one conversation; each model call has all earlier ones."""
MODEL_SECONDS = 1.0
IDLE = 3.0
"""Seconds without messages, to measure the idle CPU time."""
SETTLES = 1.0
"""Seconds after the last answer in which its workflow ends."""
MS = 1000


@dataclass(frozen=True)
class Load:
    """A round of messages and one of trivial workflows: CPU ms of each without idle time, throughput and latency."""

    cpu: Mapping[str, float]
    trivial: Mapping[str, float]
    rate: float
    waited: Spread

    @property
    def ratio(self) -> float:
        """The CPU time of a message as a multiple of that of a trivial workflow."""
        return sum(self.cpu.values()) / sum(self.trivial.values())


class TrivialWorker:
    """A worker of trivial workflows at the server of a Maestro."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def run(self, count: int) -> None:
        """Run so many workflows."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n".encode())
        await wait_for_line(self._process, READY, 120)


@dataclass(frozen=True)
class Pair:
    """A Maestro, and the trivial worker at its Temporal server."""

    product: Product
    worker: TrivialWorker

    async def load(self) -> Load:
        """Measure one round of each."""
        pids = {"Maestro": self.product.pid, "Temporal server": self.product.server_pid}
        async with connect_users(self.product.web_port, CROWD) as users, subtract_idle(pids) as messages:
            seconds, waited = await ask_in_parallel(users, CROWD * EACH)
        others = {"worker": self.worker.pid, "Temporal server": self.product.server_pid}
        async with subtract_idle(others) as workflows:
            await self.worker.run(TRIVIAL)
        return Load(
            {name: spent * MS / len(waited) for name, spent in messages.items()},
            {name: spent * MS / TRIVIAL for name, spent in workflows.items()},
            len(waited) / seconds,
            Spread.of(waited),
        )


async def cost(bench: Bench) -> Section:
    """Measure messages and trivial workflows in turns."""
    async with AsyncExitStack() as stack:
        pairs = {
            name: await stack.enter_async_context(pair(product))
            for name, product in (await stack.enter_async_context(_products(bench, "cost"))).items()
        }
        rounds: dict[str, list[Load]] = {name: [] for name in pairs}
        for _ in range(max(3, bench.rounds)):
            for name, one in pairs.items():
                rounds[name].append(await one.load())
    return Section(
        "cost",
        f"What a message costs, with {CROWD} users at once",
        f"{CROWD} WebSocket clients in {CROWD} new channels send {EACH} messages each, the next when the answer is "
        f"there; the model answers at once. In turns with {TRIVIAL} workflows that do nothing, {CROWD} at a time, in a "
        "worker without a sandbox at the same Temporal server. CPU time, less what the processes take when idle. The "
        "ratio is that of Maestro and server together to that of worker and server.",
        tuple(one for name in rounds for one in _costs(name, rounds[name])),
    )


def _costs(name: str, rounds: Sequence[Load]) -> tuple[Figure, ...]:
    of = "" if name == THIS else f", {name}"
    return (
        figure(f"ratio{of}", "", [one.ratio for one in rounds], at_most(3.0) if name == THIS else None),
        *(figure(f"CPU of {part}{of}", "ms", [one.cpu[part] for one in rounds]) for part in rounds[0].cpu),
        *(
            figure(f"CPU of {part} for a trivial workflow{of}", "ms", [one.trivial[part] for one in rounds])
            for part in rounds[0].trivial
        ),
        figure(f"messages answered{of}", "per s", [one.rate for one in rounds]),
        figure(f"an answer took, p50{of}", "ms", [one.waited.p50 * MS for one in rounds]),
        figure(f"an answer took, p95{of}", "ms", [one.waited.p95 * MS for one in rounds]),
    )


async def latency(bench: Bench) -> Section:
    """One user, one message at a time."""
    async with _products(bench, "latency") as products:
        rounds = [await _measure_latency(products) for _ in range(bench.rounds)]
    figures = [
        figure(
            f"an answer took, {what}{'' if name == THIS else f', {name}'}", "ms", [pick(one[name]) for one in rounds]
        )
        for name in products
        for what, pick in (("p50", _p50), ("p95", _p95))
    ]
    if BASE in products:
        shares = [_p50(one[THIS]) / _p50(one[BASE]) * 100 for one in rounds]
        figures.append(figure("p50, of that of the base", "%", shares, at_most(45)))
    return Section(
        "latency",
        "An answer to a single user",
        f"One WebSocket client, {CONVERSATIONS * CONVERSATION} messages in a row, {CONVERSATION} to a conversation; "
        "from sending the message to the whole answer.",
        tuple(figures),
    )


async def _measure_latency(products: Mapping[str, Product]) -> dict[str, Spread]:
    waited: dict[str, list[float]] = {name: [] for name in products}
    for _ in range(CONVERSATIONS):
        for name, product in products.items():
            async with connect_users(product.web_port, 1) as [user]:
                waited[name] += await ask_in_sequence(user, CONVERSATION)
    return {name: Spread.of(seconds) for name, seconds in waited.items()}


def _p50(spread: Spread) -> float:
    return spread.p50 * MS


def _p95(spread: Spread) -> float:
    return spread.p95 * MS


async def slow_model(bench: Bench) -> Section:
    """Fifty users ask at the same moment, and a model call takes a second."""
    after: dict[str, list[Spread]] = {}
    async with _products(bench, "slow-model") as products:
        for _ in range(bench.rounds):
            for name, product in products.items():
                async with connect_users(product.web_port, CROWD) as users:
                    await ask_at_once(users)
                    await bench.model.set_delay(MODEL_SECONDS)
                    after.setdefault(name, []).append(Spread.of(await ask_at_once(users)))
                    await bench.model.set_delay(0)
    return Section(
        "slow-model",
        f"{CROWD} users ask at once, and the model takes {MODEL_SECONDS:g} s",
        f"{CROWD} channels, one message each, all sent at the same moment: when the answers are there, less the "
        f"{MODEL_SECONDS:g} s of the model.",
        tuple(one for name, spreads in after.items() for one in _delays(name, spreads)),
    )


def _delays(name: str, spreads: Sequence[Spread]) -> tuple[Figure, ...]:
    of, limit = ("", at_most(1.0)) if name == THIS else (f", {name}", None)
    return (
        figure(f"the last answer, after its model{of}", "s", [one.longest - MODEL_SECONDS for one in spreads], limit),
        figure(f"p50, after its model{of}", "s", [one.p50 - MODEL_SECONDS for one in spreads]),
    )


async def warm_up(product: Product) -> None:
    """Send messages until all libraries are loaded and all connections open."""
    async with connect_users(product.web_port, CROWD) as users:
        await users[0].ask()
        await ask_in_parallel(users, WARM_UP)


@asynccontextmanager
async def _products(bench: Bench, name: str) -> AsyncIterator[dict[str, Product]]:
    """Run a warm Maestro of each tree; they are measured in turns, so that other load affects both."""
    async with AsyncExitStack() as stack:
        products = {
            of: await stack.enter_async_context(up(bench.setting(f"{name}-{of}", tree)))
            for of, tree in bench.trees.items()
        }
        for product in products.values():
            await warm_up(product)
        yield products


@asynccontextmanager
async def pair(product: Product) -> AsyncIterator[Pair]:
    """Run a worker of trivial workflows, warm, at the server of a Maestro."""
    address = f"127.0.0.1:{product.setting.options['temporal']['port']}"
    command = (sys.executable, "-m", "benchmarks.trivial", address)
    async with run_process(command, product.setting.folder / "trivial.log") as process:
        await wait_for_line(process, READY, 60)
        worker = TrivialWorker(process)
        await worker.run(WARM_UP)
        yield Pair(product, worker)


@asynccontextmanager
async def subtract_idle(pids: Mapping[str, int], settles: float = SETTLES) -> AsyncIterator[dict[str, float]]:
    """Give, at the end of a block, the CPU seconds of processes for it, without their idle CPU time.

    After the block it waits for ``settles`` seconds, in which running work ends.
    """
    before = cpu_times(pids)
    await asyncio.sleep(IDLE)
    idle = cpu_times(pids).since(before)
    before, began = cpu_times(pids), time.perf_counter()
    spent: dict[str, float] = {}
    yield spent
    await asyncio.sleep(settles)
    used, share = cpu_times(pids).since(before), (time.perf_counter() - began) / IDLE
    spent.update({name: used[name] - idle[name] * share for name in used})
