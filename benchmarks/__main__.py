"""Measures Maestro: ``python -m benchmarks``, or ``make bench``."""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.machine import Machine, this_machine
from benchmarks.measure.bench import Bench
from benchmarks.measure.chain import chain
from benchmarks.measure.chat import chat
from benchmarks.measure.fairness import fairness
from benchmarks.measure.flows import flows
from benchmarks.measure.history import history
from benchmarks.measure.lists import lists
from benchmarks.measure.load import latency, slow_model, throughput
from benchmarks.measure.memory import memory
from benchmarks.measure.scanner import scanner
from benchmarks.measure.start import start
from benchmarks.measure.store_size import store_size
from benchmarks.model import model
from benchmarks.report import as_json, page, table
from benchmarks.results import Section

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
JSON = HERE / "results.json"
LONGEST = 900.0
"""Seconds that one measurement may take: only a failure takes so long."""

MEASUREMENTS: dict[str, Callable[[Bench], Awaitable[Section]]] = {
    "start": start,
    "latency": latency,
    "throughput": throughput,
    "slow-model": slow_model,
    "fairness": fairness,
    "flows": flows,
    "chain": chain,
    "store": store_size,
    "lists": lists,
    "chat": chat,
    "history": history,
    "memory": memory,
    "scanner": scanner,
}


async def measure(names: Sequence[str], rounds: int) -> tuple[Machine, list[Section]]:
    """Run the measurements one after another and tell each as soon as it is there."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop, asyncio.current_task())
    machine = this_machine()
    sections: list[Section] = []
    with tempfile.TemporaryDirectory(prefix="maestro-bench-") as folder:
        async with model(Path(folder)) as served:
            for name in names:
                sections.append(await _one(name, Bench(Path(folder), served, rounds)))
                print(table(sections[-1]), end="\n\n", flush=True)
    return machine, sections


async def _one(name: str, bench: Bench) -> Section:
    started, load = time.perf_counter(), os.getloadavg()[0]
    async with asyncio.timeout(LONGEST):
        section = await MEASUREMENTS[name](bench)
    return replace(section, seconds=time.perf_counter() - started, load=load)


def _stop(measuring: "asyncio.Task[object] | None") -> None:
    """End as Ctrl-C does: everything that was started is ended first."""
    if measuring is not None:
        measuring.cancel()


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    unknown = sorted(set(names) - set(MEASUREMENTS))
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(MEASUREMENTS)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Maestro on this machine.")
    parser.add_argument("--only", type=_names, metavar="NAMES", help=f"some of: {','.join(MEASUREMENTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="how often what varies is repeated (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every value (results.json)")
    return parser.parse_args()


def main() -> int:
    """Measure, tell, and return the exit code; only a complete run rewrites the page."""
    given = _arguments()
    try:
        machine, sections = asyncio.run(measure(given.only or list(MEASUREMENTS), given.rounds))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; nothing is written", file=sys.stderr)
        return 130
    if given.only is None:
        RESULTS.write_text(page(machine, sections))
    target = given.json or (JSON if given.only is None else None)
    if target is not None:
        target.write_text(as_json(machine, sections))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Temporal's native threads may abort a process that cleans up behind itself
