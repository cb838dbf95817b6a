"""A flood of one tenant, and what another one feels of it, with fairness and without."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.clients import Person, all_at_once, channel_of, people
from benchmarks.figures import Spread
from benchmarks.measure.bench import Bench
from benchmarks.measure.load import warm_up
from benchmarks.product import Product, settle, up
from benchmarks.results import Figure, Section, at_least, figure

FLOOD = 1000
FEW = 10
PATIENCE = 180.0
"""Seconds for the last answer to a flood."""
TENANTS = {"a": FLOOD, "b": FEW}


@dataclass(frozen=True)
class Flooded:
    """Seconds that few people of B waited, with nobody else there and during A's flood, and those of A."""

    alone: Spread
    few: Spread
    flood: Spread


async def fairness(bench: Bench) -> Section:
    """A thousand people of tenant A write at the same moment, and ten of tenant B right after them.

    Once each way, however many rounds are asked for: a flood takes as long as thirty seconds of everybody's work.
    """
    without, fair = [await _flooded(bench, fair=fair) for fair in (False, True)]
    return Section(
        "fairness",
        f"{FLOOD:,} messages of one client, then {FEW} of another",
        f"{FLOOD:,} people of client A each send one message at the same moment, in {FLOOD:,} channels; as soon as all "
        f"are sent, {FEW} people of client B send one each. The model answers at once. First with `jobs.fairness` off, "
        "then on, each once, in a Maestro of its own.",
        (
            *_figures("off", without),
            *_figures("on", fair),
            figure("B's p95 is shorter with fairness", "times", [without.few.p95 / fair.few.p95], at_least(5)),
        ),
    )


async def _flooded(bench: Bench, *, fair: bool) -> Flooded:
    setting = settle(bench.folder / f"fairness-{fair}", bench.model, jobs={"fairness": fair}, **_tenants())
    async with up(setting) as product:
        await warm_up(product)
        return await _one_flood(product)


async def _one_flood(product: Product) -> Flooded:
    async with people(product.web_port, FLOOD, "a") as many, people(product.web_port, FEW, "b") as few:
        alone = await all_at_once(few)
        flood, spared = await _one_after_the_other(many, few)
    return Flooded(Spread.of(alone), Spread.of(spared), Spread.of(flood))


async def _one_after_the_other(many: Sequence[Person], few: Sequence[Person]) -> tuple[list[float], list[float]]:
    """Have everybody ask once, the few when the many have sent; return the seconds that each waited."""
    began = [await person.send() for person in [*many, *few]]
    crowd = zip([*many, *few], began, strict=True)
    waited = await asyncio.gather(*(person.answered(at, PATIENCE) for person, at in crowd))
    return waited[: len(many)], waited[len(many) :]


def _tenants() -> dict[str, Any]:
    """Return two clients, each with an agent and channels of its own."""
    return {
        "clients": [{"name": name} for name in TENANTS],
        "agents": [{"slug": "conductor", "role": "conductor"}, *({"slug": name, "client": name} for name in TENANTS)],
        "channels": [
            {"platform": "web", "channel": channel_of(name, number), "agent": name}
            for name, count in TENANTS.items()
            for number in range(count)
        ],
    }


def _figures(state: str, measured: Flooded) -> tuple[Figure, ...]:
    return (
        figure(f"{state}: B alone, p95", "s", [measured.alone.p95]),
        figure(f"{state}: B during the flood, p50", "s", [measured.few.p50]),
        figure(f"{state}: B during the flood, p95", "s", [measured.few.p95]),
        figure(f"{state}: A, p95", "s", [measured.flood.p95]),
    )
