"""Where the CPU time of a message goes, by stage, and its exact counts."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks.clients import closed_loop, people
from benchmarks.figures import median
from benchmarks.measure.bench import Bench
from benchmarks.measure.load import CROWD, EACH, IDLE, MS, SETTLES, warm_up
from benchmarks.product import Product, up
from benchmarks.results import Section, at_most, figure
from benchmarks.stages import Sums
from tests.support.message_cost import counted_instance

AIMS = {
    "commits": 6,
    "transactions": 9,
    "statements": 60,
    "reads of queue": 3,
    "thread hops": 10,
    "workflow tasks": 2,
    "history events": 16,
    "billable actions": 4,
    "files": 75,
    "files of bootstrap": 0,
}
WRITTEN_WITHIN = 10.0


async def counts(bench: Bench) -> Section:
    """Count one message."""
    folder = bench.folder / "counts"
    folder.mkdir()
    async with counted_instance(folder) as answer:
        numbers = (await answer()).numbers
    return Section(
        "counts",
        "One message, counted",
        "The second plain message of a conversation, as `tests/temporal/test_message_cost.py` counts it; BEGIN and "
        "COMMIT are statements, too.",
        tuple(figure(name, "", numbers[name], at_most(aim)) for name, aim in AIMS.items()),
    )


async def stages(bench: Bench) -> Section:
    """Measure in a Maestro that adds up what its threads take."""
    setting = bench.setting("stages")
    target = setting.folder / "stages.json"
    command = (sys.executable, "-m", "benchmarks.stages", str(target))
    rounds = []
    async with up(setting, command) as product:
        await warm_up(product)
        for _ in range(bench.rounds):
            rounds.append(await _round(product, target))
    names = sorted(rounds[0], key=lambda name: -median([one.get(name, 0.0) for one in rounds]))
    return Section(
        "stages",
        "Where Maestro's CPU time goes",
        f"CPU time of a message by stage, with {CROWD} people who send {EACH} messages each, less what is used idle, "
        "in a Maestro that adds up the time of each function, which itself takes some. `benchmarks/stages.py` says "
        "what belongs to a stage. Outside of Python is the SDK's core in Rust above all.",
        tuple(figure(name, "ms", [one.get(name, 0.0) for one in rounds]) for name in names),
    )


async def _round(product: Product, target: Path) -> dict[str, float]:
    async with people(product.web_port, CROWD) as crowd:
        first = await _sums(product, target)
        await asyncio.sleep(IDLE)
        second = await _sums(product, target)
        began = asyncio.get_running_loop().time()
        await closed_loop(crowd, CROWD * EACH)
        await asyncio.sleep(SETTLES)
        third = await _sums(product, target)
        share = (asyncio.get_running_loop().time() - began) / IDLE
    used, idle = _between(second, third), _between(first, second)
    spent = {name: (used[name] - idle.get(name, 0.0) * share) * MS / (CROWD * EACH) for name in used}
    whole = spent.pop("all")
    return {"in all": whole, **spent, "outside of Python": whole - sum(spent.values())}


def _between(earlier: Sums, later: Sums) -> dict[str, float]:
    return {name: later[name][0] - earlier.get(name, [0.0])[0] for name in later}


async def _sums(product: Product, target: Path) -> Sums:
    return await asyncio.to_thread(_written, product.pid, target)


def _written(pid: int, target: Path) -> Sums:
    """Have the process write its sums, and read them; raises ``TimeoutError``."""
    target.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + WRITTEN_WITHIN
    while not target.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} writes no sums")
        time.sleep(0.01)
    sums: Sums = json.loads(target.read_text())
    return sums
