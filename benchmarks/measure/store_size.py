"""The first steps of a message over a store with a million messages."""

import asyncio
import json
import sys
from typing import Any

from benchmarks.big_store import Size
from benchmarks.figures import median, percentile
from benchmarks.measure.bench import Bench
from benchmarks.processes import running
from benchmarks.results import Figure, Section, at_most, figure

MESSAGES = 500
"""New messages of a round, each in another conversation."""
TARGET = 2.0
"""Milliseconds that each of the steps may take."""

STEPS = {
    "accept": "taking a message in",
    "route": "routing: choosing the agent",
    "conversation": "upsert: recording the message",
    "context": "context: building the prompt",
}


async def store_size(bench: Bench) -> Section:
    """Build the store and take new messages through the steps, in a process that does nothing else."""
    folder = bench.folder / "store"
    await asyncio.to_thread(folder.mkdir)
    command = (sys.executable, "-m", "benchmarks.store_steps", str(folder), str(bench.rounds), str(MESSAGES))
    async with running(command, folder / "steps.log") as process:
        told, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError((folder / "steps.log").read_text())
    return section(json.loads(told), Size())


def section(told: dict[str, Any], size: Size) -> Section:
    """Return what was measured, as figures."""
    steps = (one for name, what in STEPS.items() for one in _of_step(name, what, told["took"]))
    return Section(
        "store",
        "The first steps over a large store",
        f"{size.messages:,} messages in {size.conversations:,} conversations, {size.jobs:,} jobs, {size.compactions:,} "
        f"compactions, {size.agents} agents with {size.sticky} sticky facts each, {size.facts:,} other facts and "
        f"{size.skills} skills; {MESSAGES} new messages a round, each in another conversation: most in bound channels, "
        "some direct, some by mention. Each step with its transaction, synced to disk.",
        (
            figure("building the store", "s", told["built"]),
            figure("its size", "MB", told["bytes"] / 1e6),
            *steps,
        ),
    )


def _of_step(name: str, what: str, took: list[dict[str, list[float]]]) -> tuple[Figure, ...]:
    target = at_most(TARGET) if name != "accept" else None
    return (
        figure(f"{what}, median", "ms", [median(one[name]) for one in took], target),
        figure(f"{what}, p99", "ms", [percentile(one[name], 0.99) for one in took]),
        figure(f"{what}, CPU time", "ms", [median(one[f"{name} CPU"]) for one in took]),
    )
