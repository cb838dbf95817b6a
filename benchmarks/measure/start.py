"""The seconds until Maestro is ready, and until it has answered the first message."""

import time

from benchmarks.clients import connect_users
from benchmarks.measure.bench import Bench
from benchmarks.model import Model
from benchmarks.product import Setting, create_setting, up
from benchmarks.results import Figure, Section, at_most, figure

STARTS = 3
READY, FIRST_ANSWER = "ready", "first answer, after ready"
"""The figures of each start."""


async def start(bench: Bench) -> Section:
    """Start with the demo model and with a real transport, each in a new data folder and again in the same one."""
    return Section(
        "start",
        "Start",
        'From the start of the process to its message "Maestro is ready.", and to the answer to a message sent then. '
        "Cold: the data folder does not exist. Again: it does, and the Temporal server's database with it. The files "
        "of the programs are in the system's cache in both.",
        (*await _starts(bench, "demo", None), *await _starts(bench, "litellm", bench.model)),
    )


async def _starts(bench: Bench, name: str, model: Model | None) -> tuple[Figure, ...]:
    settings = [create_setting(bench.folder / f"start-{name}-{number}", model) for number in range(STARTS)]
    cold = [await _measure_start(setting) for setting in settings]
    again = [await _measure_start(setting) for setting in settings]
    return tuple(
        made
        for start, times in (("cold", cold), ("again", again))
        for made in (
            figure(f"{name}, {start}: {READY}", "s", [ready for ready, _ in times], at_most(3)),
            figure(f"{name}, {start}: {FIRST_ANSWER}", "s", [more for _, more in times], at_most(2)),
        )
    )


async def _measure_start(setting: Setting) -> tuple[float, float]:
    """Return the seconds until it was ready, and from then on until it had answered."""
    async with up(setting) as product:
        ready = time.perf_counter()
        async with connect_users(product.web_port, 1) as [user]:
            await user.ask()
        return product.ready_after, time.perf_counter() - ready
