"""The watch over a server, with a server that ends at once when it is told to: the real one takes its time."""

import asyncio
import signal
from pathlib import Path

import pytest

from temporal.server_process import Record, watch_over


async def test_a_watch_ends_a_server_that_no_record_names_and_no_other(tmp_path: Path) -> None:
    database, file = tmp_path / "temporal.db", tmp_path / "temporal.json"
    command = ("/bin/sh", "-c", "read _", "server", str(database))
    server = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    Record(pid=server.pid, started="", command=(), program="", port=1, ui_port=2).save(file)
    watch = await watch_over(server.pid, database, file, orphaned=0.02, grace=0.1)
    assert watch.stdin is not None
    watch.stdin.close()  # as when its Maestro is gone
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await server.wait()
    file.unlink()
    assert await server.wait() == -signal.SIGTERM
    await watch.wait()
