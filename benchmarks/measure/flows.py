"""The product's flow beside a naive one and a fused one, in turns, in the same run."""

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from temporalio.client import Client

from benchmarks.billing import billable_actions
from benchmarks.clients import in_a_row, people
from benchmarks.figures import percentile
from benchmarks.measure.bench import Bench
from benchmarks.measure.load import CROWD, MS, Round, one_round, warm_up
from benchmarks.product import COMMAND, Product, up
from benchmarks.results import Figure, Section, figure

COMMANDS = {
    "product": (COMMAND,),
    "naive": (sys.executable, "-m", "benchmarks.flows", "naive"),
    "fused": (sys.executable, "-m", "benchmarks.flows", "fused"),
}
MESSAGES = 200
ALONE = 40


async def flows(bench: Bench) -> Section:
    """Measure the three in turns, so that whatever else the machine does meets all of them."""
    async with AsyncExitStack() as stack:
        products = {
            name: await stack.enter_async_context(up(bench.setting(f"flow-{name}"), command))
            for name, command in COMMANDS.items()
        }
        for product in products.values():
            await warm_up(product)
        rounds: dict[str, list[Round]] = {name: [] for name in products}
        alone: dict[str, list[float]] = {name: [] for name in products}
        for _ in range(bench.rounds):
            for name, product in products.items():
                rounds[name].append(await one_round(bench, product, MESSAGES))
                alone[name].append(await _p50_alone(product))
        counts = {name: await _events_and_actions(product) for name, product in products.items()}
    return Section(
        "flows",
        "The product's flow, a naive one and a fused one",
        "The same steps writing the same rows, arranged in three ways; `benchmarks/flows/__init__.py` states exactly "
        f"what each does. All three run at the same time and are measured in turns: {MESSAGES} messages of {CROWD} "
        f"people, then {ALONE} messages of one.",
        _side_by_side([_figures(name, rounds[name], alone[name], counts[name]) for name in products]),
    )


def _side_by_side(flows: Sequence[Sequence[Figure]]) -> tuple[Figure, ...]:
    """Return the same figure of each flow next to each other."""
    return tuple(one for same in zip(*flows, strict=True) for one in same)


async def _p50_alone(product: Product) -> float:
    async with people(product.web_port, 1) as [person]:
        return percentile(await in_a_row(person, ALONE), 0.5)


async def _events_and_actions(product: Product) -> tuple[float, float]:
    """Count the history of a message that was answered."""
    client = await Client.connect(f"127.0.0.1:{product.setting.options['temporal']['port']}")
    async for run in client.list_workflows("ExecutionStatus = 'Completed'", page_size=1):
        events = list((await client.get_workflow_handle(run.id).fetch_history()).events)
        return len(events), billable_actions(events).total()
    raise RuntimeError("the server knows no message that was answered")


def _figures(name: str, rounds: Sequence[Round], alone: Sequence[float], counts: tuple[float, float]) -> list[Figure]:
    events, actions = counts
    return [
        figure(f"messages answered: {name}", "per s", [one.rate for one in rounds]),
        figure(f"p50 alone: {name}", "ms", [seconds * MS for seconds in alone]),
        figure(f"CPU of Maestro: {name}", "ms per message", [one.cpu["Maestro"] for one in rounds]),
        figure(f"CPU of the Temporal server: {name}", "ms per message", [one.cpu["Temporal server"] for one in rounds]),
        figure(f"history events: {name}", "", events),
        figure(f"billable actions: {name}", "", actions),
    ]
