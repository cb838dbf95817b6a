"""Activations run on the event loop, and one that hangs is interrupted and reported."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from structlog.testing import capture_logs

from temporal.sdk import ActivationExecutor, ActivationHang, Watchdog, _raise_in_thread

BRIEF = 0.05
LIMIT = 2.0

variable = ContextVar("variable", default="nothing")


@pytest.fixture
def executor() -> Iterator[ActivationExecutor]:
    with ActivationExecutor(BRIEF) as executor:
        yield executor


async def activate(executor: ActivationExecutor, function: Callable[..., Any], *args: Any) -> Any:
    """Run a function as the SDK runs an activation."""
    return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(executor, function, *args), 30)


def hang() -> None:
    while True:
        pass


async def test_an_activation_runs_on_the_event_loop_with_a_context_of_its_own(executor: ActivationExecutor) -> None:
    def activation(number: int) -> tuple[int, int, str]:
        return number, threading.get_ident(), variable.get()

    variable.set("something")
    assert await activate(executor, activation, 1) == (1, threading.get_ident(), "nothing")


async def test_the_event_loop_goes_on_after_a_workflow_that_is_one_itself(executor: ActivationExecutor) -> None:
    await activate(executor, asyncio._set_running_loop, None)
    await asyncio.sleep(0)
    assert asyncio.current_task() is not None


async def test_what_an_activation_raises_reaches_the_sdk(executor: ActivationExecutor) -> None:
    with pytest.raises(ZeroDivisionError):
        await activate(executor, divmod, 1, 0)


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, GeneratorExit])
async def test_what_would_end_the_handler_of_the_sdk_fails_the_workflow_task(
    executor: ActivationExecutor, error: type[BaseException]
) -> None:
    """The SDK catches every ``Exception`` and reports it; after anything else Temporal would hear nothing."""

    def activation() -> None:
        raise error

    with pytest.raises(RuntimeError, match=error.__name__):
        await activate(executor, activation)


async def test_an_activation_that_was_given_up_before_it_began_does_not_run(executor: ActivationExecutor) -> None:
    ran: list[int] = []
    future = asyncio.get_running_loop().run_in_executor(executor, ran.append, 1)
    future.cancel()
    await asyncio.sleep(0)
    assert ran == []


async def test_activations_have_threads_with_another_version_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr("temporal.sdk.version", lambda _: "1.36.0")
        executor = ActivationExecutor(BRIEF)
    with executor:
        assert await activate(executor, threading.get_ident) != threading.get_ident()
    assert [line["event"] for line in logs] == ["activations.in_threads"]


async def test_an_activation_that_hangs_is_a_timeout_and_the_log_says_where(executor: ActivationExecutor) -> None:
    with capture_logs() as logs, pytest.raises(TimeoutError):
        await activate(executor, hang)
    [line] = logs
    assert (line["event"], line["log_level"]) == ("workflow.hangs", "error")
    assert "in hang" in line["stack"]


async def test_activations_have_threads_once_one_has_hung(executor: ActivationExecutor) -> None:
    with pytest.raises(TimeoutError):
        await activate(executor, hang)
    assert await activate(executor, threading.get_ident) != threading.get_ident()


def watchdog_at(now: list[float]) -> Watchdog:
    return Watchdog(LIMIT, clock=lambda: now[0])


def test_what_takes_less_than_the_limit_is_left_alone() -> None:
    now = [0.0]
    watchdog = watchdog_at(now)

    def activation() -> str:
        now[0] += LIMIT - 0.1
        watchdog.check_activations()
        return "done"

    assert watchdog.run(activation) == "done"
    now[0] += LIMIT
    watchdog.check_activations()
    assert watchdog.hangs == 0
    watchdog.stop()


def test_each_activation_has_the_whole_limit() -> None:
    now = [0.0]
    watchdog = watchdog_at(now)
    for _ in range(5):
        watchdog.run(lambda: now.__setitem__(0, now[0] + LIMIT / 2))
        watchdog.check_activations()
    assert watchdog.hangs == 0
    watchdog.stop()


def test_an_interruption_that_an_activation_survives_is_a_timeout_all_the_same() -> None:
    now = [0.0]
    watchdog = watchdog_at(now)

    def activation() -> str:
        now[0] += LIMIT
        try:
            watchdog.check_activations()
            threading.get_ident()
        except BaseException:  # noqa: BLE001 - a workflow that takes everything for its own
            return "survived"
        return "done"

    with pytest.raises(TimeoutError):
        watchdog.run(activation)
    assert watchdog.run(lambda: "next") == "next"
    watchdog.stop()


class LateLock:
    """A lock whose holder is interrupted once more before it gets the lock, as on a busy machine."""

    def __init__(self) -> None:
        self.interruptions = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if self.interruptions and threading.current_thread() is threading.main_thread():
            self.interruptions -= 1
            _raise_in_thread(threading.get_ident(), ActivationHang)
            threading.get_ident()  # where the interruption arrives, at the latest
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("times", [1, 2])
def test_a_further_interruption_at_the_end_of_an_activation_is_its_last(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    now, lock = [0.0], LateLock()
    watchdog = watchdog_at(now)
    monkeypatch.setattr(watchdog, "_lock", lock)

    def activation() -> None:
        now[0] += LIMIT
        try:
            watchdog.check_activations()
            hang()
        finally:
            lock.interruptions = times

    with pytest.raises(TimeoutError):
        watchdog.run(activation)
    now[0] += LIMIT
    watchdog.check_activations()
    assert (watchdog.hangs, lock.interruptions) == (1, 0)
    assert watchdog.run(lambda: "next") == "next"
    watchdog.stop()


def test_an_error_of_its_own_is_no_timeout() -> None:
    watchdog = watchdog_at([0.0])
    with pytest.raises(ZeroDivisionError):
        watchdog.run(lambda: 1 // 0)
    watchdog.stop()


def test_the_thread_ends() -> None:
    watchdog = Watchdog(BRIEF)
    watchdog.run(lambda: None)
    watchdog.stop()
    assert watchdog._thread is not None
    watchdog._thread.join(30)
    assert not watchdog._thread.is_alive()


def test_a_thread_can_be_traced_after_an_interruption() -> None:
    """A flag that the interpreter keeps would let a traced call begin again and again."""
    script = (
        "import sys, threading, time\n"
        "from temporal.sdk import Watchdog\n"
        "watchdog = Watchdog(0.05)\n"
        "def spin():\n"
        "    while True: pass\n"
        "try:\n"
        "    watchdog.run(spin)\n"
        "except TimeoutError: pass\n"
        "watchdog.stop()\n"
        "sys.settrace(lambda frame, event, argument: None)\n"
        "(lambda: None)()\n"
        "print('traced')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.endswith("traced\n"), done.stderr
