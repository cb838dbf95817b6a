"""The cost of a message in the Temporal server on a busy machine, compared with a quiet one."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from benchmarks.clients import ask_in_parallel, connect_users
from benchmarks.measure.bench import Bench
from benchmarks.measure.load import MS, Pair, pair, subtract_idle, warm_up
from benchmarks.processes import run_process
from benchmarks.product import Product, up
from benchmarks.results import Figure, Section, at_most, figure
from benchmarks.trivial import Trivial

QUIET, BUSY = "quiet", "busy"
SPINNERS = 20
"""Processes that use a core all the time."""
NICENESS = 10
"""Each gets a tenth of the time that a thread of Maestro gets, so that a round ends within half a minute."""
SPINS_AT_MOST = 120
"""Seconds after which a spinner ends by itself, whatever happened to the benchmark."""
SPIN = f"import os, signal; os.nice({NICENESS}); signal.alarm({SPINS_AT_MOST})\nwhile True: pass"
CROWD = 10
EACH = 6
WORKFLOWS = 100
"""Trivial workflows of a round: their higher cost beside busy processes is that of the machine, not of Maestro."""
ROUNDS = 2
SETTLES = 3.0
"""Seconds in which earlier work ends, also on a busy machine: the start, or the workflow of the last answer."""
LISTED_WITHIN = 20.0
LIST_PAUSE = 0.2


@dataclass(frozen=True)
class Round:
    """CPU in ms of a message and of a trivial workflow, the workflow tasks of the messages, and answers per second."""

    server: float
    trivial: float
    maestro: float
    tasks: float
    sticky_timeouts: int
    lost: int
    rate: float


async def busy_machine(bench: Bench) -> Section:
    """Measure the same messages in turns: alone on the machine, and beside busy processes."""
    rounds: dict[str, list[Round]] = {QUIET: [], BUSY: []}
    async with up(bench.setting("busy-machine")) as product, pair(product) as measured:
        await warm_up(product)
        for _ in range(ROUNDS):
            rounds[QUIET].append(await _round(measured, nullcontext()))
            rounds[BUSY].append(await _round(measured, _spinners(bench)))
    return Section(
        "busy-machine",
        f"A message beside {SPINNERS} busy processes",
        f"{CROWD} WebSocket clients send {EACH} messages each, the next when the answer is there: alone on the "
        f"machine, and in turns with that beside {SPINNERS} processes that do nothing but use the cores (nice "
        f"{NICENESS}). {WORKFLOWS} trivial workflows in each turn show what the machine itself adds: a server that "
        "shares the caches of its cores needs more time for the same work. CPU time, less what is used idle. A sticky "
        "timeout is a workflow task that was not taken in time by the process that has the workflow in memory: the "
        "next one reads its history from the beginning. A lost one was given to the process and never reached it, or "
        "was not answered in time: the answer is there, and its workflow ends later.",
        tuple(_figures(rounds)),
    )


def _figures(rounds: dict[str, list[Round]]) -> list[Figure]:
    turns = list(zip(rounds[QUIET], rounds[BUSY], strict=True))
    messages = [busy.server / quiet.server for quiet, busy in turns]
    workflows = [busy.trivial / quiet.trivial for quiet, busy in turns]
    beyond = [message / workflow for message, workflow in zip(messages, workflows, strict=True)]
    return [
        figure("CPU of Temporal server, busy to quiet", "", messages),
        figure("CPU of Temporal server for a trivial workflow, busy to quiet", "", workflows),
        figure("CPU of Temporal server, busy to quiet, of that of a trivial workflow", "", beyond, at_most(1.1)),
        *(
            figure(f"{what}, {name}", unit, [getattr(one, field) for one in of])
            for what, unit, field in (
                ("CPU of Temporal server", "ms", "server"),
                ("CPU of Temporal server for a trivial workflow", "ms", "trivial"),
                ("CPU of Maestro", "ms", "maestro"),
                ("workflow tasks of a message", "", "tasks"),
                ("sticky timeouts of all messages", "", "sticky_timeouts"),
                ("workflow tasks of all messages that were lost", "", "lost"),
                ("messages answered", "per s", "rate"),
            )
            for name, of in rounds.items()
        ),
    ]


async def _round(measured: Pair, company: AbstractAsyncContextManager[None]) -> Round:
    """Measure messages and trivial workflows beside other processes; reading the histories is not measured."""
    product = measured.product
    await asyncio.sleep(SETTLES)
    began = datetime.now(UTC)
    pids = {"Maestro": product.pid, "Temporal server": product.server_pid}
    async with company:
        async with connect_users(product.web_port, CROWD) as users, subtract_idle(pids, SETTLES) as spent:
            seconds, waited = await ask_in_parallel(users, CROWD * EACH)
        async with subtract_idle({"Temporal server": product.server_pid}, SETTLES) as workflows:
            await measured.worker.run(WORKFLOWS)
    count = len(waited)
    histories = await _histories(product, began, count)
    tasks = Counter(kind for events in histories for kind in task_ends(events))
    return Round(
        server=spent["Temporal server"] * MS / count,
        trivial=workflows["Temporal server"] * MS / WORKFLOWS,
        maestro=spent["Maestro"] * MS / count,
        tasks=tasks.total() / count,
        sticky_timeouts=tasks["sticky timeout"],
        lost=tasks["timeout"] + tasks["open"],
        rate=count / seconds,
    )


def task_ends(events: Sequence[HistoryEvent]) -> list[str]:
    """Return how each workflow task of a history ended: completed, failed, by a sticky timeout, by another, or not."""
    plain = {
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED: "completed",
        EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED: "failed",
        EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT: "timeout",
    }
    ends = [
        "sticky timeout" if _is_sticky_timeout(event) else plain[event.event_type]
        for event in events
        if event.event_type in plain
    ]
    scheduled = sum(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED for event in events)
    return [*ends, *["open"] * (scheduled - len(ends))]


def _is_sticky_timeout(event: HistoryEvent) -> bool:
    # Only the queue of one process has a limit for the time until a task is taken.
    kind = event.workflow_task_timed_out_event_attributes.timeout_type
    return kind == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START


async def _histories(product: Product, began: datetime, count: int) -> list[Sequence[HistoryEvent]]:
    """Return the histories of the messages' workflows that were started since then; raises ``TimeoutError``."""
    client = await Client.connect(f"127.0.0.1:{product.setting.options['temporal']['port']}")
    query = f"StartTime >= '{began.isoformat()}' AND WorkflowType != '{Trivial.__name__}'"
    async with asyncio.timeout(LISTED_WITHIN):
        # The server lists a workflow a moment after its start, without a notification.
        while len(found := [one.id async for one in client.list_workflows(query)]) < count:  # noqa: ASYNC110
            await asyncio.sleep(LIST_PAUSE)
    return [(await client.get_workflow_handle(one).fetch_history()).events for one in found]


@asynccontextmanager
async def _spinners(bench: Bench) -> AsyncIterator[None]:
    """Keep the machine busy while the block runs."""
    async with AsyncExitStack() as stack:
        for _ in range(SPINNERS):
            await stack.enter_async_context(
                run_process((sys.executable, "-I", "-S", "-c", SPIN), bench.folder / "spinners.log")
            )
        yield
