"""Where the CPU time of a message goes, by stage, and its exact counts."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks.clients import ask_in_parallel, connect_users
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
    """Measure a Maestro with a profile of its threads."""
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
        f"CPU time of a message by stage, with {CROWD} users who send {EACH} messages each, without the idle CPU time, "
        "in a Maestro that profiles each function, which itself takes some time. `benchmarks/stages.py` lists the "
        "stages. Outside of Python is the SDK's core in Rust above all.",
        tuple(figure(name, "ms", [one.get(name, 0.0) for one in rounds]) for name in names),
    )


async def _round(product: Product, target: Path) -> dict[str, float]:
    async with connect_users(product.web_port, CROWD) as users:
        first = await _read_sums(product, target)
        await asyncio.sleep(IDLE)
        second = await _read_sums(product, target)
        began = asyncio.get_running_loop().time()
        await ask_in_parallel(users, CROWD * EACH)
        await asyncio.sleep(SETTLES)
        third = await _read_sums(product, target)
        share = (asyncio.get_running_loop().time() - began) / IDLE
    used, idle = _subtract(second, third), _subtract(first, second)
    spent = {name: (used[name] - idle.get(name, 0.0) * share) * MS / (CROWD * EACH) for name in used}
    whole = spent.pop("all")
    return {"in all": whole, **spent, "outside of Python": whole - sum(spent.values())}


def _subtract(earlier: Sums, later: Sums) -> dict[str, float]:
    return {name: later[name][0] - earlier.get(name, [0.0])[0] for name in later}


async def _read_sums(product: Product, target: Path) -> Sums:
    return await asyncio.to_thread(_request_sums, product.pid, target)


def _request_sums(pid: int, target: Path) -> Sums:
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
