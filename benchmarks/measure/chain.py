"""What our middleware adds to a model call, beside the bare library, in turns, in the same run."""

import json
import sys

from benchmarks.measure.bench import Bench
from benchmarks.processes import running
from benchmarks.results import Section, figure

CALLS = 100
ROUNDS = 3


async def chain(bench: Bench) -> Section:
    """Measure in a process of its own, whose CPU time is all that counts."""
    setting, rounds = bench.setting("chain"), bench.rounds * ROUNDS
    command = (sys.executable, "-m", "benchmarks.chain_calls", str(setting.config), str(rounds), str(CALLS))
    async with running(command, setting.folder / "chain.log") as process:
        told, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError((setting.folder / "chain.log").read_text())
    took: dict[str, list[float]] = json.loads(told)
    added = [whole - bare for whole, bare in zip(took["the whole chain"], took["bare litellm"], strict=True)]
    return Section(
        "chain",
        "The chain around a model call",
        f"CPU time of the calling process per call, all threads included: {CALLS} calls that follow each other, each "
        "with a system message and 21 turns, in turns with the other ways. Bare: `litellm.acompletion` as it comes. "
        "The transport: what makes it one request and failures comparable. The whole chain: replay guard, stop guard, "
        "budget, failover, validator, breaker, limits, cache markers and recorder, with three transactions to disk.",
        (
            *(figure(name, "ms per call", rounds) for name, rounds in took.items()),
            figure("added by the whole chain", "ms per call", added),
        ),
    )
