"""Signals to processes that tests start."""

import asyncio
import signal

from tests.support.forking import block_until_ended, send_signal

TIMES = 20
"""Enough to see a loss: without ``send_signal``, one in five of these exit codes is lost."""


async def test_a_signal_at_the_end_of_a_process_leaves_its_exit_code() -> None:
    codes = []
    for _ in range(TIMES):
        process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
        block_until_ended(process)
        send_signal(process, signal.SIGCONT)
        codes.append(await process.wait())
    assert codes == [3] * TIMES
