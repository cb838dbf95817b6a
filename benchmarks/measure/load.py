"""Fifty people at once, and one alone."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.clients import all_at_once, closed_loop, in_a_row, people
from benchmarks.figures import Spread
from benchmarks.measure.bench import Bench
from benchmarks.processes import cpu_times
from benchmarks.product import Product, up
from benchmarks.results import Figure, Section, at_least, at_most, figure

CROWD = 50
WARM_UP = 100
MESSAGES = 600
ALONE = 100
CONVERSATION = 10
"""Messages of one conversation: what is said before goes to the model again each time."""
MS = 1000


@dataclass(frozen=True)
class Round:
    """One round of a closed loop: messages per second, seconds of each answer, CPU ms per message by process."""

    rate: float
    waited: Spread
    cpu: dict[str, float]


async def throughput(bench: Bench) -> Section:
    """Fifty channels, each sending its next message when its answer is there."""
    async with up(bench.setting("throughput")) as product:
        await warm_up(product)
        rounds = [await one_round(bench, product, MESSAGES) for _ in range(bench.rounds)]
    return Section(
        "throughput",
        f"Throughput with {CROWD} people at once",
        f"{CROWD} WebSocket clients in {CROWD} channels; each sends its next message when its answer is there. "
        f"{MESSAGES} messages a round after {WARM_UP} to warm up; new channels in every round. The clients run in one "
        "process on the same machine, and so does the model server: their CPU time is listed, too.",
        (
            figure("messages answered", "per s", [one.rate for one in rounds], at_least(35)),
            *_spread("an answer took", [one.waited for one in rounds]),
            *cpu_figures(rounds),
        ),
    )


async def latency(bench: Bench) -> Section:
    """One person, one message at a time."""
    async with up(bench.setting("latency")) as product:
        await warm_up(product)
        async with people(product.web_port, 1) as [person]:
            await in_a_row(person, ALONE // 5)
        rounds = []
        for _ in range(bench.rounds):
            waited: list[float] = []
            for _ in range(ALONE // CONVERSATION):
                async with people(product.web_port, 1) as [person]:
                    waited += await in_a_row(person, CONVERSATION)
            rounds.append(Spread.of(waited))
    return Section(
        "latency",
        "An answer when nobody else asks",
        f"One WebSocket client, {ALONE} messages in a row, {CONVERSATION} to a conversation; from sending the message "
        "to the whole answer.",
        _spread("an answer took", rounds, p50=45),
    )


async def slow_model(bench: Bench) -> Section:
    """Fifty people ask at the same moment, and the model thinks for a second."""
    async with up(bench.setting("slow-model")) as product:
        await warm_up(product)
        rounds = []
        for _ in range(bench.rounds):
            async with people(product.web_port, CROWD) as crowd:
                await bench.model.answers_after(0)
                await all_at_once(crowd)
                await bench.model.answers_after(1)
                rounds.append(Spread.of(await all_at_once(crowd)))
        await bench.model.answers_after(0)
    return Section(
        "slow-model",
        f"{CROWD} people ask at once, and the model takes 1 s",
        f"{CROWD} channels, one message each, all sent at the same moment; the model answers each after 1 s.",
        (
            figure("all answered after", "s", [one.longest for one in rounds], at_most(1.6)),
            figure("p50", "s", [one.p50 for one in rounds]),
            figure("p95", "s", [one.p95 for one in rounds]),
        ),
    )


async def warm_up(product: Product) -> None:
    """Let everything be loaded, connected and compiled: the first call waits for the model library."""
    async with people(product.web_port, CROWD) as crowd:
        await crowd[0].ask()
        await closed_loop(crowd, WARM_UP)


async def one_round(bench: Bench, product: Product, messages: int) -> Round:
    """Have fifty people in new channels talk until so many messages are answered."""
    pids = bench.pids(product) | {"clients": os.getpid()}
    async with people(product.web_port, CROWD) as crowd:
        before = cpu_times(pids)
        seconds, waited = await closed_loop(crowd, messages)
        used = cpu_times(pids).since(before)
    cpu = {name: spent * MS / messages for name, spent in used.items()}
    return Round(len(waited) / seconds, Spread.of(waited), cpu)


def cpu_figures(rounds: Sequence[Round]) -> tuple[Figure, ...]:
    """Return the CPU time of a message by process."""
    return tuple(
        figure(f"CPU of {name}", "ms per message", [one.cpu[name] for one in rounds]) for name in rounds[0].cpu
    )


def _spread(what: str, rounds: Sequence[Spread], p50: float | None = None) -> tuple[Figure, ...]:
    return (
        figure(f"{what}, p50", "ms", [one.p50 * MS for one in rounds], at_most(p50) if p50 else None),
        figure(f"{what}, p95", "ms", [one.p95 * MS for one in rounds]),
        figure(f"{what}, longest", "ms", [one.longest * MS for one in rounds]),
    )
