"""Threads without a caller that waits for them."""

import asyncio
import threading

import pytest

from maestro.diagnostics.doctor import DaemonThreads


def test_an_answer_and_an_error_both_arrive() -> None:
    threads = DaemonThreads()
    assert threads.submit(divmod, 7, 2).result() == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result()


def test_an_event_loop_ends_although_a_call_hangs() -> None:
    never = threading.Event()

    async def give_up() -> str:
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        try:
            await asyncio.wait_for(asyncio.to_thread(never.wait), 0.01)
        except TimeoutError:
            return "gave up"
        return "waited"

    try:
        assert asyncio.run(give_up()) == "gave up"
    finally:
        never.set()
