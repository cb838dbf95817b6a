"""Soak Maestro: ``python -m benchmarks.soak`` puts mixed load on it for an hour, then writes a million messages."""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from benchmarks.machine import Machine, this_machine
from benchmarks.model import model
from benchmarks.processes import end_on_sigterm
from benchmarks.report import SOAK, as_json, from_json, table, write_pages
from benchmarks.results import Section
from benchmarks.soak.million import COMMIT_SIZE, DAYS, Day, million
from benchmarks.soak.mixed import LEAST_MINUTES, Sample, TooFewSamplesError, mixed_load

Part = tuple[Section, Sequence[Sample | Day]]


async def measure(minutes: float, messages: int) -> list[Part]:
    """Run both parts, or the one with a size; raises ``TooFewSamplesError``."""
    end_on_sigterm()
    parts: dict[str, Callable[[Path], Awaitable[Part]]] = {}
    if minutes:
        parts["soak"] = partial(_load, minutes=minutes)
    if messages:
        parts["million"] = partial(_write, messages=messages)
    found: list[Part] = []
    for name, part in parts.items():
        with tempfile.TemporaryDirectory(prefix=f"maestro-{name}-") as folder:
            began, load = time.perf_counter(), os.getloadavg()[0]
            section, samples = await part(Path(folder))
            section = replace(section, seconds=time.perf_counter() - began, load=load)
        print(table(section), end="\n\n", flush=True)
        found.append((section, samples))
    return found


async def _load(folder: Path, minutes: float) -> Part:
    async with model(folder) as model_server:
        return await mixed_load(folder, model_server, minutes)


async def _write(folder: Path, messages: int) -> Part:
    stop = threading.Event()
    writing = asyncio.create_task(asyncio.to_thread(million, folder, messages, stop))
    try:
        return await asyncio.shield(writing)
    finally:  # a thread cannot be cancelled, and the folder stays until it has ended
        stop.set()
        await asyncio.gather(writing, return_exceptions=True)


def add_parts(path: Path, machine: Machine, parts: Sequence[Part]) -> None:
    """Write parts to a file, in the form of the benchmarks and with all samples; its other part stays."""
    before = path.read_text() if path.exists() else ""
    sections = {one.name: one for one in from_json(before)[1]} if before else {}
    samples = json.loads(before)["samples"] if before else {}
    where = f"{machine.date}: {machine.processor}, {machine.cores} cores, Maestro {machine.release}"
    for section, found in parts:
        sections[section.name] = replace(section, how=f"{section.how} Measured by `{COMMAND}` on {where}.")
        samples[section.name] = [asdict(sample) for sample in found]
    in_order = [sections[name] for name in NAMES if name in sections]
    path.write_text(json.dumps({**json.loads(as_json(machine, in_order)), "samples": samples}, indent=1) + "\n")


COMMAND = "python -m benchmarks.soak"
MINUTES = 60
MESSAGES = 1_000_000
NAMES = ("soak", "million")
"""The parts, in their order on the page."""


def main() -> int:
    """Measure, print, and return the exit code: 1 for a missed target. Only parts of the full size get to the page."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description="Put load on Maestro for an hour, then write a million messages."
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="minutes of mixed load (60); 0: none")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="messages with retention (1000000); 0: none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every value (soak.json)")
    given = parser.parse_args()
    if given.messages and given.messages < (least := DAYS * COMMIT_SIZE * 2):
        parser.error(f"--messages: at least {least}, or 0")
    if given.minutes and not given.minutes >= LEAST_MINUTES:
        parser.error(f"--minutes: at least {LEAST_MINUTES:g}, or 0")
    is_full = {"soak": given.minutes == MINUTES, "million": given.messages == MESSAGES}
    machine = this_machine()
    try:
        parts = asyncio.run(measure(given.minutes, given.messages))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; nothing is written", file=sys.stderr)
        return 130
    except TooFewSamplesError as error:
        print(f"{error}; nothing is written", file=sys.stderr)
        return 1
    if given.json:
        given.json.unlink(missing_ok=True)
        add_parts(given.json, machine, parts)
    elif full := [part for part in parts if is_full[part[0].name]]:
        add_parts(SOAK, machine, full)
        write_pages()
    missed = list_missed([section for section, _ in parts])
    for text in missed:
        print(f"missed target: {text}", file=sys.stderr)
    return 1 if missed else 0


def list_missed(sections: Sequence[Section]) -> list[str]:
    """Return the part and the name of each figure that misses its target."""
    return [f"{section.name}: {one.what}" for section in sections for one in section.figures if one.met is False]


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Temporal's native threads may abort a process that cleans up behind itself
