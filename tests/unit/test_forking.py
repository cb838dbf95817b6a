"""Signals to processes that tests start."""

import asyncio
import os
import signal
from contextlib import suppress

from tests.support.forking import send_signal

TIMES = 20
"""Enough to see a loss: without ``send_signal``, one in five of these exit codes is lost."""


async def test_a_signal_at_the_end_of_a_process_leaves_its_exit_code() -> None:
    codes = []
    for _ in range(TIMES):
        process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
        with suppress(ChildProcessError):  # The event loop has the exit code already.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - the loop must not see the end first
        send_signal(process, signal.SIGCONT)
        codes.append(await process.wait())
    assert codes == [3] * TIMES
