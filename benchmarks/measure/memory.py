"""Memory of every kind of process, idle and after load."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.clients import ask_in_parallel, connect_users
from benchmarks.measure.bench import Bench
from benchmarks.measure.load import CROWD, warm_up
from benchmarks.processes import Memory, memory_of, run_process, wait_for_line
from benchmarks.product import COMMAND, Product, create_setting, up
from benchmarks.results import Figure, Section, at_most, figure
from temporal.server import EmbeddedServer, ServerConfig
from tests.support.ports import free_port

SEPARATE = (("worker",), ("api",), ("connect", "web"))
WITH_MODELS = ("worker",)
MESSAGES = 600
START_TIMEOUT = 60.0
SETTLES = 5.0
"""Seconds after which an idle process has loaded its libraries in the background."""


async def memory(bench: Bench) -> Section:
    """Measure ``maestro up``, its server, and the same parts as separate processes."""
    demo = await _measure_demo(bench)
    together = await _measure_up(bench)
    return Section(
        "memory",
        "Memory",
        "MiB. RSS is everything a process has in memory, PSS its share of what several processes map, USS what is its "
        f"own alone. Idle: {SETTLES:g} s after the start, the model library loaded. After load: {MESSAGES} messages of "
        f"{CROWD} users. The separate processes run against a Temporal server of their own, idle.",
        (*demo, *together, *await _measure_separate(bench)),
    )


async def _measure_demo(bench: Bench) -> tuple[Figure, ...]:
    async with up(create_setting(bench.folder / "memory-demo", None)) as product:
        await asyncio.sleep(SETTLES)
        return _figures("maestro up, demo model, idle", memory_of(product.pid), 330)


async def _measure_up(bench: Bench) -> tuple[Figure, ...]:
    async with up(bench.setting("memory")) as product:
        await asyncio.sleep(SETTLES)
        idle = _figures_of_up(product, "idle", 330)
        await warm_up(product)
        async with connect_users(product.web_port, CROWD) as users:
            await ask_in_parallel(users, MESSAGES)
        return (*idle, *_figures_of_up(product, "after load", 330))


def _figures_of_up(product: Product, when: str, limit: float) -> tuple[Figure, ...]:
    server = memory_of(product.server_pid)
    return (
        *_figures(f"maestro up, {when}", memory_of(product.pid), limit),
        figure(f"its Temporal server, {when}: RSS", "MiB", server.rss),
    )


async def _measure_separate(bench: Bench) -> tuple[Figure, ...]:
    folder = bench.folder / "memory-apart"
    await asyncio.to_thread(folder.mkdir)
    server = EmbeddedServer(ServerConfig(folder, free_port(), free_port()), lambda _: None)
    try:
        await server.start()
        setting = create_setting(folder / "maestro", bench.model, temporal={"address": server.address})
        figures: list[Figure] = []
        async with contextlib.AsyncExitStack() as stack:
            for command in SEPARATE:
                pid = await stack.enter_async_context(_process(command, str(setting.config)))
                await asyncio.sleep(SETTLES)
                limit = None if command[0] in WITH_MODELS else 150
                figures += _figures(f"maestro {' '.join(command)}, idle", memory_of(pid), limit)
        return tuple(figures)
    finally:
        await server.stop()


@asynccontextmanager
async def _process(command: tuple[str, ...], config: str) -> AsyncIterator[int]:
    """Run one part of Maestro until the block ends; its process id."""
    log = Path(config).with_name(f"{command[0]}.log")
    async with run_process((COMMAND, *command, "--config", config), log) as process:
        await wait_for_line(process, "ready", START_TIMEOUT)
        yield process.pid


def _figures(what: str, found: Memory, limit: float | None) -> tuple[Figure, ...]:
    return (
        figure(f"{what}: RSS", "MiB", found.rss, at_most(limit) if limit else None),
        figure(f"{what}: PSS", "MiB", found.pss),
        figure(f"{what}: USS", "MiB", found.uss),
    )
