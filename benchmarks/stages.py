"""The command ``maestro`` with a profile of its CPU time by stage of a message; SIGUSR1 writes the sums to a file.

Work given to a thread counts for the function that was given, a callback of the event loop for the coroutine of its
task, and the functions of ``STEPS`` for themselves, wherever they are called.
"""

import asyncio
import functools
import importlib.util
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from maestro.cli.main import exit_process, run

STAGES = {
    "intake": ("connectors/web/", "maestro/intake/", "maestro/connector_runtime/host"),
    "dispatcher": ("temporal/dispatcher",),
    "journal": ("temporal/journal",),
    "route": ("activities/routing",),
    "record": ("activities/conversations",),
    "context": ("activities/context",),
    "tags": ("activities/tags",),
    "send": ("activities/delivery", "activities/chunks", "connectors/hub"),
    "model: the step": ("activities/model_calls",),
    "model: litellm and HTTP": (
        "maestro/llm/litellm_client",
        "maestro/llm/translation",
        "maestro/llm/wire",
        "litellm/",
        "httpx/",
        "httpcore/",
    ),
    "model: the chain": ("maestro/llm/", "maestro/bootstrap/models"),
    "SDK: activities": ("temporalio/worker/_activity", "temporal/attempts"),
    "SDK: workflows": ("temporalio/worker/_workflow", "temporalio/", "temporal/sdk", "workflows/"),
    "sockets": ("websockets/", "uvicorn/", "starlette/"),
}
"""The path prefixes of the modules of each stage; the first match counts."""
STEPS = {
    "activities.conversations:PreparationActivities.prepare": "context",
    "activities.routing:RoutingActivities.choose_agent": "route",
    "activities.conversations:ConversationActivities.record_message": "record",
    "activities.context:ContextActivities.build_context": "context",
    "activities.model_calls:LLMActivities.call_model": "model: the step",
    "activities.model_calls:AnsweringActivities.answer": "model: the step",
    "activities.conversations:TagActivities.record_answer": "tags",
    "activities.delivery:DeliveryActivities.deliver": "send",
    "activities.delivery:DeliveryActivities.prepare_at_once": "send",
    "activities.delivery:DeliveryActivities.send_chunks": "send",
    "maestro.llm.litellm_client:LiteLLMClient.ask": "model: litellm and HTTP",
}
"""Functions with a stage of their own, inside of other work; in sources without one, its caller's stage counts."""
OTHER = "other work"
LOOP = "event loop: waiting and waking"

Sums = dict[str, list[float]]


class StageClock:
    """The CPU time of each thread, by the innermost stage that it is in."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._sums: list[Sums] = []

    @contextmanager
    def within(self, stage: str) -> Iterator[None]:
        """Add the CPU time of the block, without that of the stages inside of it."""
        sums, stack = self._of_thread()
        began = time.thread_time()
        stack.append(0.0)
        try:
            yield
        finally:
            took = time.thread_time() - began
            inside = stack.pop()
            one = sums[stage]
            one[0] += took - inside
            one[1] += 1
            if stack:
                stack[-1] += took

    def sums(self) -> Sums:
        """Return the seconds and the number of blocks, by stage."""
        total: Sums = defaultdict(lambda: [0.0, 0])
        for one in list(self._sums):
            for stage, (seconds, times) in list(one.items()):
                total[stage][0] += seconds
                total[stage][1] += times
        return dict(total)

    def _of_thread(self) -> tuple[Sums, list[float]]:
        if not hasattr(self._local, "sums"):
            self._local.sums, self._local.stack = defaultdict(lambda: [0.0, 0]), []
            self._sums.append(self._local.sums)
        return self._local.sums, self._local.stack


def stage_of(path: str) -> str:
    """Return the stage of a module's path or name."""
    path = path.replace(".", "/")
    return next((name for name, starts in STAGES.items() if any(f"/{start}" in f"/{path}" for start in starts)), OTHER)


def time_function(clock: StageClock, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
    """Return the function with its CPU time added to a stage; a coroutine's time ends at each await."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        with clock.within(stage):
            return function(*args, **named)

    @functools.wraps(function)
    async def call_async(*args: Any, **named: Any) -> Any:
        return await _TimedCoroutine(clock, stage, function(*args, **named))

    return call_async if inspect.iscoroutinefunction(function) else call


class _TimedCoroutine:
    """An awaitable that adds the time of each resumption to a stage."""

    def __init__(self, clock: StageClock, stage: str, coroutine: Any) -> None:
        self._clock, self._stage, self._coroutine = clock, stage, coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        step, given = self._coroutine.send, None
        while True:
            try:
                with self._clock.within(self._stage):
                    waits_for = step(given)
            except StopIteration as end:
                return end.value
            try:
                step, given = self._coroutine.send, (yield waits_for)
            except BaseException as error:  # noqa: BLE001 - the coroutine handles it
                step, given = self._coroutine.throw, error


@contextmanager
def time_stages(clock: StageClock) -> Iterator[None]:
    """Add the time of all work of threads and of the event loop."""
    submit, run_handle = ThreadPoolExecutor.submit, asyncio.Handle._run

    def submitted(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        stage = stage_of(_module_of(work, args))

        def timed() -> Any:
            with clock.within(stage):
                return work(*args, **named)

        return submit(pool, timed)

    def handled(handle: asyncio.Handle) -> None:
        callback = handle._callback  # type: ignore[attr-defined]
        task = getattr(callback, "__self__", None)
        coroutine: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
        is_task = inspect.iscoroutine(coroutine)
        with clock.within(stage_of(coroutine.cr_code.co_filename if is_task else _module_of(callback, ()))):
            run_handle(handle)

    for name, stage in STEPS.items():
        module, _, path = name.partition(":")
        owner, _, method = path.partition(".")
        kind = getattr(importlib.import_module(module), owner, None) if importlib.util.find_spec(module) else None
        if hasattr(kind, method):
            setattr(kind, method, time_function(clock, getattr(kind, method), stage))
    with mock.patch.object(ThreadPoolExecutor, "submit", submitted), mock.patch.object(asyncio.Handle, "_run", handled):
        yield


def _module_of(work: Any, args: tuple[Any, ...]) -> str:
    if isinstance(work, functools.partial):
        return _module_of(work.func, work.args)
    if getattr(work, "__name__", "") == "run" and args and callable(args[0]):  # of a Context: asyncio.to_thread
        return _module_of(args[0], args[1:])
    return str(getattr(work, "__module__", ""))


def main(target: Path, arguments: list[str]) -> int:
    """Run a command, and write the sums at SIGUSR1."""
    clock = StageClock()

    def write(_number: int, _frame: FrameType | None) -> None:
        sums = clock.sums()
        in_loop = sum(seconds for stage, (seconds, _) in clock._sums[0].items())
        sums[LOOP] = [time.thread_time() - in_loop, 0]
        sums["all"] = [time.process_time(), 0]
        part = target.with_suffix(".part")
        part.write_text(json.dumps(sums))
        os.replace(part, target)

    clock._of_thread()  # the first thread is that of the event loop
    signal.signal(signal.SIGUSR1, write)
    with time_stages(clock):
        return run(arguments)


if __name__ == "__main__":
    exit_process(main(Path(sys.argv[1]), sys.argv[2:]))
