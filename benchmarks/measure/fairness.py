"""A flood of one client, and the latency of another, with fairness and without."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.clients import WebUser, ask_at_once, channel_of, connect_users
from benchmarks.figures import Spread
from benchmarks.measure.bench import Bench
from benchmarks.measure.load import warm_up
from benchmarks.product import Product, create_setting, up
from benchmarks.results import Figure, Section, at_least, figure

FLOOD = 1000
FEW = 10
ANSWER_TIMEOUT = 180.0
"""Seconds for the last answer to a flood."""
TENANTS = {"a": FLOOD, "b": FEW}


@dataclass(frozen=True)
class FloodWaits:
    """The latency in seconds of the few users of B alone and during A's flood, and that of A's users."""

    alone: Spread
    few: Spread
    flood: Spread


async def fairness(bench: Bench) -> Section:
    """A thousand users of client A write at the same moment, and ten of client B right after them.

    Once each way, whatever the number of rounds: a flood takes thirty seconds.
    """
    without, fair = [await _measure_flood(bench, fair=fair) for fair in (False, True)]
    return Section(
        "fairness",
        f"{FLOOD:,} messages of one client, then {FEW} of another",
        f"{FLOOD:,} users of client A each send one message at the same moment, in {FLOOD:,} channels; as soon as all "
        f"are sent, {FEW} users of client B send one each. The model answers at once. First with `jobs.fairness` off, "
        "then on, each once, in a Maestro of its own.",
        (
            *_figures("off", without),
            *_figures("on", fair),
            figure("B's p95 is shorter with fairness", "times", [without.few.p95 / fair.few.p95], at_least(5)),
        ),
    )


async def _measure_flood(bench: Bench, *, fair: bool) -> FloodWaits:
    setting = create_setting(bench.folder / f"fairness-{fair}", bench.model, jobs={"fairness": fair}, **_tenants())
    async with up(setting) as product:
        await warm_up(product)
        return await _one_flood(product)


async def _one_flood(product: Product) -> FloodWaits:
    async with connect_users(product.web_port, FLOOD, "a") as many, connect_users(product.web_port, FEW, "b") as few:
        alone = await ask_at_once(few)
        flood, spared = await _one_after_the_other(many, few)
    return FloodWaits(Spread.of(alone), Spread.of(spared), Spread.of(flood))


async def _one_after_the_other(many: Sequence[WebUser], few: Sequence[WebUser]) -> tuple[list[float], list[float]]:
    """Have each user ask once, the few after the many; return the seconds until each answer."""
    began = [await user.send() for user in [*many, *few]]
    users = zip([*many, *few], began, strict=True)
    waited = await asyncio.gather(*(user.wait_for_answer(at, ANSWER_TIMEOUT) for user, at in users))
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


def _figures(state: str, measured: FloodWaits) -> tuple[Figure, ...]:
    return (
        figure(f"{state}: B alone, p95", "s", [measured.alone.p95]),
        figure(f"{state}: B during the flood, p50", "s", [measured.few.p50]),
        figure(f"{state}: B during the flood, p95", "s", [measured.few.p95]),
        figure(f"{state}: A, p95", "s", [measured.flood.p95]),
    )
