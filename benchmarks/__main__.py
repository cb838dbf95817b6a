"""Measure Maestro: ``python -m benchmarks``, or ``make bench``."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from benchmarks.report import JSON, as_json, from_json, table, write_pages
from benchmarks.results import Section

LONGEST = 900.0
"""Seconds after which a measurement has failed."""

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
"""The measurements that run only when they are named."""


async def measure(names: Sequence[str], rounds: int, base: str) -> tuple[Machine, list[Section]]:
    """Run the measurements one after another, and print each at its end."""
    end_on_sigterm()
    machine = this_machine()
    sections: list[Section] = []
    with tempfile.TemporaryDirectory(prefix="maestro-bench-") as folder:
        trees = {THIS: ROOT, **({BASE: await sources_of(base, Path(folder))} if base else {})}
        async with model(Path(folder)) as model_server:
            expected, done = expect_seconds(names), 0.0
            bar = ProgressBar(sum(expected.values()), "expected s")
            for number, name in enumerate(names, 1):
                async with bar.advance(done, expected[name], f"{name} ({number} of {len(names)})"):
                    section = await _measure_section(name, Bench(Path(folder), model_server, rounds, trees))
                sections.append(_name_base(section, base))
                done += expected[name]
                bar.clear()
                print(table(sections[-1]), end="\n\n", flush=True)
            bar.show(done)
    return machine, sections


def expect_seconds(names: Sequence[str], path: Path = JSON) -> Mapping[str, float]:
    """Return the seconds of each measurement in the last results, 1 where they are not known."""
    sections = from_json(path.read_text())[1] if path.exists() else []
    seconds = {one.name: one.seconds for one in sections}
    return {name: max(1.0, float(round(seconds.get(name, 1.0)))) for name in names}


def _name_base(section: Section, base: str) -> Section:
    """Return a section that names the commit of the base, if it has figures of the base."""
    if not base or not any(figure.what.endswith(f", {BASE}") for figure in section.figures):
        return section
    return replace(section, how=f"{section.how} The base is commit {base}.")


async def _measure_section(name: str, bench: Bench) -> Section:
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
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the measurements that vary (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every value (results.json)")
    return parser.parse_args()


def main() -> int:
    """Measure, print, and return the exit code; only a complete run rewrites the page."""
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
