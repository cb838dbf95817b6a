"""Measures Maestro: ``python -m benchmarks``, or ``make bench``."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.machine import Machine, this_machine
from benchmarks.measure.bench import BASE, THIS, Bench
from benchmarks.measure.busy_machine import busy_machine
from benchmarks.measure.chat import chat
from benchmarks.measure.fairness import fairness
from benchmarks.measure.lists import lists
from benchmarks.measure.load import cost, latency, slow_model
from benchmarks.measure.memory import memory
from benchmarks.measure.scanner import scanner
from benchmarks.measure.stages import counts, stages
from benchmarks.measure.start import start
from benchmarks.measure.writers import writers
from benchmarks.model import model
from benchmarks.processes import ROOT, end_on_sigterm, sources_of
from benchmarks.progress import ProgressBar
from benchmarks.report import JSON, as_json, table, write_pages
from benchmarks.results import Section

LONGEST = 900.0
"""Seconds that one measurement may take: only a failure takes so long."""

MEASUREMENTS: dict[str, Callable[[Bench], Awaitable[Section]]] = {
    "cost": cost,
    "latency": latency,
    "slow-model": slow_model,
    "busy-machine": busy_machine,
    "counts": counts,
    "stages": stages,
    "start": start,
    "memory": memory,
    "lists": lists,
}
MORE: dict[str, Callable[[Bench], Awaitable[Section]]] = {
    "fairness": fairness,
    "chat": chat,
    "scanner": scanner,
    "writers": writers,
}
"""What is measured only when it is named."""


async def measure(names: Sequence[str], rounds: int, base: str) -> tuple[Machine, list[Section]]:
    """Run the measurements one after another and tell each as soon as it is there."""
    end_on_sigterm()
    machine = this_machine()
    sections: list[Section] = []
    with tempfile.TemporaryDirectory(prefix="maestro-bench-") as folder:
        trees = {THIS: ROOT, **({BASE: await sources_of(base, Path(folder))} if base else {})}
        async with model(Path(folder)) as served:
            bar = ProgressBar(len(names), "measurements")
            for name in names:
                bar.show(len(sections), name)
                section = await _one(name, Bench(Path(folder), served, rounds, trees))
                sections.append(_naming(section, base))
                bar.clear()
                print(table(sections[-1]), end="\n\n", flush=True)
            bar.show(len(sections))
    return machine, sections


def _naming(section: Section, base: str) -> Section:
    """Return a section that says of which commit the figures of the base are, where it has any."""
    if not base or not any(figure.what.endswith(f", {BASE}") for figure in section.figures):
        return section
    return replace(section, how=f"{section.how} The base is commit {base}.")


async def _one(name: str, bench: Bench) -> Section:
    started, load = time.perf_counter(), os.getloadavg()[0]
    async with asyncio.timeout(LONGEST):
        section = await (MEASUREMENTS | MORE)[name](bench)
    return replace(section, seconds=time.perf_counter() - started, load=load)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    unknown = sorted(set(names) - set(MEASUREMENTS | MORE))
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(MEASUREMENTS | MORE)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Maestro on this machine.")
    parser.add_argument("--only", type=_names, metavar="NAMES", help=f"some of: {','.join(MEASUREMENTS | MORE)}")
    parser.add_argument("--base", default="", metavar="REF", help="a commit to measure in turns with these sources")
    parser.add_argument("--rounds", type=int, default=3, help="how often what varies is repeated (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every value (results.json)")
    return parser.parse_args()


def main() -> int:
    """Measure, tell, and return the exit code; only a complete run rewrites the page."""
    given = _arguments()
    try:
        machine, sections = asyncio.run(measure(given.only or list(MEASUREMENTS), given.rounds, given.base))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; nothing is written", file=sys.stderr)
        return 130
    complete = given.only is None
    target = given.json or (JSON if complete else None)
    if target is not None:
        target.write_text(as_json(machine, sections))
    if complete and target == JSON:
        write_pages()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Temporal's native threads may abort a process that cleans up behind itself
